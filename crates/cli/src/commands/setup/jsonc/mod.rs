//! JSON as people write it: with comments and commas behind the last value. Changes one value and
//! leaves every other byte as it is.

mod change;
mod parse;

use serde_json::Value;

pub(super) use self::change::{append, remove, remove_element, set};
use self::parse::{Node, NodeKind, parse};
use super::text::FileProblem;

/// The value at a path of keys; none if there is none.
pub(super) fn get(text: &str, path: &[String]) -> Result<Option<Value>, FileProblem> {
    let root = parse(text)?;
    Ok(root.as_ref().and_then(|root| root.find(path)).map(Node::value))
}

impl Node {
    /// The node at a path of keys.
    fn find(&self, path: &[String]) -> Option<&Self> {
        let Some((key, rest)) = path.split_first() else { return Some(self) };
        let NodeKind::Object(members) = &self.kind else { return None };
        // Of two with one name the last counts, as in every reader.
        members.iter().rev().find(|member| member.key == *key)?.value.find(rest)
    }

    fn value(&self) -> Value {
        match &self.kind {
            NodeKind::Object(members) => {
                let pairs = members.iter().map(|it| (it.key.clone(), it.value.value()));
                Value::Object(pairs.collect())
            }
            NodeKind::Array(items) => Value::Array(items.iter().map(Self::value).collect()),
            NodeKind::Scalar(value) => value.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn path(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn a_value_is_added_where_comments_and_order_stay() {
        let entry = json!({ "command": "/l", "args": ["mcp"] });
        let at = path(&["mcp", "legwork"]);
        let cases = [
            (
                "",
                "{\n  \"mcp\": {\n    \"legwork\": {\n      \"command\": \"/l\",\n      \"args\": [\"mcp\"]\n    }\n  }\n}\n",
            ),
            (
                "{}",
                "{\n  \"mcp\": {\n    \"legwork\": {\n      \"command\": \"/l\",\n      \"args\": [\"mcp\"]\n    }\n  }\n}",
            ),
            (
                "{\n\t// mine\n\t\"b\": 1, // one\n\t\"mcp\": {\n\t\t\"x\": {} // last\n\t},\n\t\"a\": 2\n}\n",
                "{\n\t// mine\n\t\"b\": 1, // one\n\t\"mcp\": {\n\t\t\"x\": {}, // last\n\t\t\"legwork\": {\n\t\t\t\"command\": \"/l\",\n\t\t\t\"args\": [\"mcp\"]\n\t\t}\n\t},\n\t\"a\": 2\n}\n",
            ),
            (
                "{\n    \"mcp\": {\n        \"x\": 1,\n    },\n}\n",
                "{\n    \"mcp\": {\n        \"x\": 1,\n        \"legwork\": {\n            \"command\": \"/l\",\n            \"args\": [\"mcp\"]\n        },\n    },\n}\n",
            ),
            (
                "{ \"mcp\": { \"x\": 1 } }",
                "{ \"mcp\": { \"x\": 1, \"legwork\": {\"command\": \"/l\", \"args\": [\"mcp\"]} } }",
            ),
            (
                "{\r\n  \"mcp\": {}\r\n}\r\n",
                "{\r\n  \"mcp\": {\r\n    \"legwork\": {\r\n      \"command\": \"/l\",\r\n      \"args\": [\"mcp\"]\r\n    }\r\n  }\r\n}\r\n",
            ),
            (
                "{\n  \"mcp\": {\n    // none yet\n  }\n}",
                "{\n  \"mcp\": {\n    // none yet\n    \"legwork\": {\n      \"command\": \"/l\",\n      \"args\": [\"mcp\"]\n    }\n  }\n}",
            ),
        ];
        for (before, after) in cases {
            let changed = set(before, &at, &entry).unwrap();
            assert_eq!(changed, after, "{before}");
            assert_eq!(get(&changed, &at).unwrap(), Some(entry.clone()), "{before}");
            assert_eq!(set(&changed, &at, &entry).unwrap(), changed, "twice is once");
        }
    }

    #[test]
    fn what_was_added_can_be_taken_out_again() {
        let cases = [
            "{\n  \"mcp\": {\n    \"x\": {} // last\n  }\n}\n",
            "{\n  // a\n  \"mcp\": {\n    \"x\": 1, /* b */\n  },\n}\n",
            "{ \"mcp\": { \"x\": 1 } }",
            "{\r\n  \"mcp\": {\r\n    \"x\": 1\r\n  }\r\n}\r\n",
        ];
        let at = path(&["mcp", "legwork"]);
        for before in cases {
            let changed = set(before, &at, &json!({ "a": 1 })).unwrap();
            assert_eq!(remove(&changed, &at).unwrap(), before, "{changed}");
        }
        let middle = "{\n  \"a\": 1, // one\n  \"b\": 2, // two\n  \"c\": 3\n}";
        let without = "{\n  \"a\": 1, // one\n  \"c\": 3\n}";
        assert_eq!(remove(middle, &path(&["b"])).unwrap(), without);
        assert_eq!(remove(without, &path(&["b"])).unwrap(), without, "it is not there");
    }

    #[test]
    fn elements_of_lists_are_added_and_taken_out() {
        let at = path(&["permissions", "deny"]);
        let one = set("{}", &at, &json!(["Bash"])).unwrap();
        let from_nothing = append("{}", &at, &json!("Bash")).unwrap();
        assert_eq!(one, from_nothing);
        let listed =
            "{\n  \"permissions\": {\n    \"deny\": [\n      \"a\" // why\n    ]\n  }\n}\n";
        let more = append(listed, &at, &json!("Bash")).unwrap();
        let expected = "{\n  \"permissions\": {\n    \"deny\": [\n      \"a\", // why\n      \"Bash\"\n    ]\n  }\n}\n";
        assert_eq!(more, expected);
        assert_eq!(remove_element(&more, &at, 1).unwrap(), listed);
        let inline = "{\"permissions\": {\"deny\": [\"a\"]}}";
        let more = append(inline, &at, &json!("Bash")).unwrap();
        assert_eq!(more, "{\"permissions\": {\"deny\": [\"a\", \"Bash\"]}}");
        assert_eq!(remove_element(&more, &at, 1).unwrap(), inline);
        assert_eq!(
            remove_element(&more, &at, 0).unwrap(),
            "{\"permissions\": {\"deny\": [\"Bash\"]}}"
        );
    }

    #[test]
    fn a_value_in_the_way_is_an_error_and_is_not_replaced() {
        let at = path(&["mcp", "legwork"]);
        for (text, line, column) in [
            ("{\n  \"mcp\": []\n}", 2, 10),
            ("[]", 1, 1),
            ("{\n  \"a\": 1\n  \"b\": 2\n}", 3, 3),
            ("{ \"a\": tru }", 1, 8),
            ("{\n  /* open", 2, 3),
            ("{ \"a\": 1 } x", 1, 12),
            ("{ \"a\": ", 1, 8),
            ("{ \"a\" 1 }", 1, 7),
        ] {
            let problem = set(text, &at, &json!(1)).unwrap_err();
            assert_eq!((problem.line, problem.column), (line, column), "{text}: {problem:?}");
        }
        let deep = "[".repeat(100_000);
        assert!(set(&deep, &at, &json!(1)).is_err());
    }
}

//! A rule with `sandbox = "none"` lets one known program out, and nothing that goes by its name.

use serde_json::{Value, json};

use super::house::{House, OPERATOR, TRUSTS};

const RULE: &str = "[[rule]]\nprogram = \"touch\"\ndecision = \"allow\"\nsandbox = \"none\"\n";

fn run(house: &House, trust: &str, input: &Value, path: Option<&str>) {
    let mut command = house.legwork("call", trust);
    if let Some(path) = path {
        command.env("PATH", format!("{path}:/usr/bin:/bin"));
    }
    command.args(["ExecCommand", &input.to_string()]).output().unwrap();
}

#[test]
fn a_rule_lets_one_known_program_out_of_the_sandbox_and_nothing_else() {
    for house in House::each() {
        let house = house.with_policy(RULE);
        let outside = house.name("outside");
        let shell = house.script("workspace/shell.sh", &format!("touch {outside}/by-shell"));
        let planted = house.script("workspace/.venv/bin/touch", "echo planted > \"$1\"");
        let folder = planted.parent().unwrap().to_str().unwrap();
        let cmd = |text: String| json!({ "cmd": text, "shell": "/bin/bash", "login": false });
        let plain = cmd(format!("touch {outside}/let-out"));
        let by_shell =
            json!({ "cmd": format!("touch {outside}/x"), "shell": shell, "login": false });
        run(&house, OPERATOR, &plain, None);
        assert!(house.path("outside/let-out").exists(), "the rule itself holds");

        run(&house, OPERATOR, &by_shell, None);
        run(&house, OPERATOR, &cmd(format!("touch {outside}/planted")), Some(folder));
        for (name, text) in [
            ("hashed", format!("BASH_CMDS[touch]=/usr/bin/tee; touch {outside}/hashed")),
            ("with-another", format!("touch {outside}/with-another; true")),
            ("redirected", format!("touch x > {outside}/redirected")),
            ("in-a-function", format!("touch() {{ : > {outside}/in-a-function; }}; touch x")),
            ("with-a-variable", format!("LD_PRELOAD=x touch {outside}/with-a-variable")),
            ("expanded", format!("x={outside}/expanded; touch $x")),
        ] {
            run(&house, OPERATOR, &cmd(text), None);
            assert!(!house.path(&format!("outside/{name}")).exists(), "{name}");
        }
        for name in ["by-shell", "x", "planted"] {
            assert!(!house.path(&format!("outside/{name}")).exists(), "{name}");
        }
        // Nobody who is less than an operator is let out by a rule.
        for trust in TRUSTS.into_iter().filter(|trust| *trust != OPERATOR) {
            run(&house, trust, &cmd(format!("touch {outside}/{trust}")), None);
            assert!(!house.path(&format!("outside/{trust}")).exists(), "{trust}");
        }
    }
}

#[test]
fn a_home_that_is_a_link_which_commands_can_turn_leads_them_nowhere() {
    for house in House::each() {
        let house = house.with_policy("[sandbox]\nwritable = [\"~/kept\"]\n");
        let house = house.with_home("workspace/link");
        house.folder("home/kept");
        let elsewhere = house.folder("outside/kept");
        let link = house.path("workspace/link");
        std::os::unix::fs::symlink(house.path("home"), &link).unwrap();
        let turn = format!("ln -sfn {} link && readlink link", house.name("outside"));
        assert_eq!(house.prints(OPERATOR, &turn), house.name("outside"));
        for command in ["touch ~/kept/x", "cp /etc/hostname ~/kept/y", "touch link/kept/z"] {
            let result = house.exec(OPERATOR, command);
            assert_ne!(result["exit_status"], 0, "{command}: {result:#}");
        }
        assert_eq!(std::fs::read_dir(elsewhere).unwrap().count(), 0);
    }
}

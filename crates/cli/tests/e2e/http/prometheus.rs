//! Numbers as operators use them: read by the real Prometheus, checked by its own tool.

use std::{
    collections::BTreeSet,
    fs,
    io::Write,
    net::{TcpListener, TcpStream},
    path::PathBuf,
    process::{Child, Command, Stdio},
};

use serde_json::{Value, json};

use super::{Serving, client::Wire, token};
use crate::common::{Scratch, eventually, has_program, text};

/// A file of docs/operators.
fn shipped(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/operators").join(name)
}

/// The names of our numbers in a text.
fn named(text: &str) -> BTreeSet<String> {
    let names = regex::Regex::new("legwork_[a-z_]+").unwrap();
    names.find_iter(text).map(|found| found.as_str().to_owned()).collect()
}

/// The families that a server announces.
fn announced(serving: &Serving, viewer: &str) -> BTreeSet<String> {
    let page = serving.get("/metrics", viewer).body;
    let families = page.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let names = |line: &str| match line.split_once(' ').unwrap() {
        (name, "histogram") => ["bucket", "sum", "count"].map(|of| format!("{name}_{of}")).to_vec(),
        (name, _) => vec![name.to_owned()],
    };
    families.flat_map(names).collect()
}

#[test]
fn the_dashboard_and_the_alerts_use_numbers_that_there_are() {
    let scratch = Scratch::new();
    let viewer = token(&scratch, "scraper", &["--role", "viewer"]);
    let serving = Serving::start(&scratch, &[]);
    let families = announced(&serving, &viewer);
    for file in ["dashboard.json", "alerts.yml"] {
        let used = named(&fs::read_to_string(shipped(file)).unwrap());
        assert!(used.len() > 3, "{file}");
        assert!(used.is_subset(&families), "{file}: {:?}", used.difference(&families));
    }
    let dashboard = fs::read_to_string(shipped("dashboard.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&dashboard).unwrap();
    assert!(dashboard["panels"].as_array().unwrap().len() > 5);
}

#[test]
fn the_tool_of_prometheus_finds_nothing_wrong() {
    if !has_program("promtool", &["--version"]) {
        return;
    }
    let mut rules = Command::new("promtool");
    let rules = rules.args(["check", "rules"]).arg(shipped("alerts.yml")).output().unwrap();
    assert!(rules.status.success(), "{}", text(&rules.stderr));
    let scratch = Scratch::new();
    let viewer = token(&scratch, "scraper", &["--role", "viewer"]);
    let serving = Serving::start(&scratch, &[]);
    let page = serving.get("/metrics", &viewer).body;
    let mut check = Command::new("promtool");
    check.args(["check", "metrics"]).stdin(Stdio::piped());
    let mut check = check.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    check.stdin.take().unwrap().write_all(page.as_bytes()).unwrap();
    let checked = check.wait_with_output().unwrap();
    assert!(checked.status.success(), "{}{}", text(&checked.stdout), text(&checked.stderr));
}

/// A Prometheus that ends with the test.
struct Prometheus(Child);

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn prometheus_reads_the_numbers_with_a_token() {
    if !has_program("prometheus", &["--version"]) {
        return;
    }
    let scratch = Scratch::new();
    let operator = token(&scratch, "me", &["--role", "operator"]);
    let viewer = token(&scratch, "scraper", &["--role", "viewer"]);
    let serving = Serving::start(&scratch, &[]);
    let kept = json!({ "cmd": "sleep 600", "login": false, "yield_time_ms": 0 });
    serving.post("/api/v1/tasks", &operator, &kept).good();
    let (secret, config) = (scratch.file("token"), scratch.file("prometheus.yml"));
    fs::write(&secret, viewer).unwrap();
    let target = serving.address.trim_start_matches("http://");
    let text = format!(
        "global: {{ scrape_interval: 200ms }}\nrule_files: [\"{}\"]\nscrape_configs:\n  - job_name: legwork\n    \
         authorization: {{ credentials_file: \"{}\" }}\n    static_configs: [{{ targets: [\"{target}\"] }}]\n",
        shipped("alerts.yml").display(),
        secret,
    );
    fs::write(&config, text).unwrap();
    // A port that was free a moment ago.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut prometheus = Command::new("prometheus");
    prometheus.arg(format!("--config.file={config}"));
    prometheus.arg(format!("--storage.tsdb.path={}", scratch.file("data")));
    prometheus.arg(format!("--web.listen-address=127.0.0.1:{port}"));
    prometheus.stdout(Stdio::null()).stderr(Stdio::null());
    let _prometheus = Prometheus(prometheus.spawn().unwrap());
    let address = format!("http://127.0.0.1:{port}");
    let read = eventually("it has read the numbers", || {
        TcpStream::connect(("127.0.0.1", port)).ok()?;
        let reply = Wire::connect(&address).send(
            "GET",
            "/api/v1/query?query=legwork_tasks_running",
            &[],
            "",
        );
        let answer: Value = serde_json::from_str(&reply.body).ok()?;
        Some(answer["data"]["result"][0]["value"][1].as_str()?.to_owned())
    });
    assert_eq!(read, "1");
}

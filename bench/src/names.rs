//! Network by name: what it adds to a call that connects to nothing, and the speed of downloads
//! through its proxy.

use std::{
    fs,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use tempfile::TempDir;

use crate::{
    client::Client,
    measure::{median, micros, minimum},
    report::Report,
};

/// A server of sandboxed commands with a network of this mode.
fn client(legwork: &Path, workspace: &Path, mode: &str, rest: &str) -> Client {
    let policy = workspace.join(format!("{mode}.toml"));
    fs::write(&policy, format!("[network]\nmode = \"{mode}\"\n{rest}\n")).unwrap();
    let place = workspace.to_str().unwrap();
    let policy = policy.to_str().unwrap();
    let trust = ["--trust", "trusted_operator"];
    let arguments = [&["--workspace", place, "--policy", policy], &trust[..]].concat();
    Client::start_with(legwork, &arguments)
}

pub fn names(legwork: &Path, quick: bool, report: &mut Report) {
    calls(legwork, if quick { 200 } else { 2000 }, report);
    downloads(legwork, quick, report);
}

/// The same call with network by name and with none.
fn calls(legwork: &Path, rounds: u32, report: &mut Report) {
    let workspace = TempDir::new().unwrap();
    let mut by_name = client(legwork, workspace.path(), "names", "allow = [\"@python\"]");
    let mut without = client(legwork, workspace.path(), "none", "");
    for _ in 0..50 {
        by_name.run("true");
        without.run("true");
    }
    let (mut ours, mut raw) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        ours.push(micros(|| drop(by_name.run("true"))));
        raw.push(micros(|| drop(without.run("true"))));
    }
    report.curve("network by name", &ours);
    report.curve("no network", &raw);
    let what = "sandboxed call, network by name against none";
    report.compare(&format!("{what}, p50"), median(&ours), median(&raw), "us", "1.05");
    report.compare(&format!("{what}, minimum"), minimum(&ours), minimum(&raw), "us", "");
}

/// The same downloads, through the proxy and with all of the network: by HTTPS, as registries are;
/// from a server as people have it on their own machine; and from one that does nothing but copy.
fn downloads(legwork: &Path, quick: bool, report: &mut Report) {
    let bytes: u64 = if quick { 300_000_000 } else { 1_000_000_000 };
    let turns = if quick { 3 } else { 7 };
    let megabytes = bytes / 1_000_000;
    let folder = TempDir::new().unwrap();
    fs::File::create(folder.path().join("file")).unwrap().set_len(bytes).unwrap();
    let mut compare = |what: &str, address: &str, url: &str, hold: &'static str| {
        let (ours, raw) = speeds(legwork, address, url, &folder, turns);
        let what = format!("{what}, {megabytes} MB, through the proxy against direct");
        report.compare(&what, median(&ours), median(&raw), "MB/s", hold);
    };
    if let Some(server) = Server::tls(&folder) {
        let address = server.address.clone();
        compare("https download", &address, &format!("https://{address}/file"), ">= 0.8");
    }
    if let Some(server) = Server::plain(&folder) {
        let address = server.address.clone();
        compare("download from python's server", &address, &format!("http://{address}/file"), "");
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        for stream in listener.incoming() {
            thread::spawn(move || serve(stream.unwrap(), bytes));
        }
    });
    compare("download from memory", &address, &format!("http://{address}/"), "");
}

/// Speeds of a download in MB/s, through the proxy and direct.
fn speeds(
    legwork: &Path,
    address: &str,
    url: &str,
    folder: &TempDir,
    turns: u32,
) -> (Vec<f64>, Vec<f64>) {
    let allow = format!("allow = [\"{address}\"]");
    let mut through = client(legwork, folder.path(), "names", &allow);
    let mut direct = client(legwork, folder.path(), "all", "");
    // The environment excepts the loopback from the proxy, and this server is there.
    let fetch = format!(
        "curl -sS --noproxy '' --cacert ca.pem -o /dev/null -w '%{{speed_download}}' {url}"
    );
    let speed = |client: &mut Client| {
        let receipt = client.run(&fetch);
        let (_, bytes) = receipt.rsplit_once('\n').unwrap();
        bytes.trim().parse::<f64>().unwrap_or_else(|_| panic!("{receipt}")) / 1e6
    };
    let (mut ours, mut raw) = (Vec::new(), Vec::new());
    for _ in 0..turns {
        ours.push(speed(&mut through));
        raw.push(speed(&mut direct));
    }
    (ours, raw)
}

/// A server that is a program of its own.
struct Server {
    child: Child,
    address: String,
}

impl Server {
    /// That of OpenSSL, with a certificate of its own authority; none where there is no OpenSSL.
    fn tls(folder: &TempDir) -> Option<Self> {
        let name = ["-subj", "/CN=bench", "-addext", "subjectAltName=IP:127.0.0.1"];
        let key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];
        let files = ["-keyout", "key.pem", "-out", "ca.pem", "-days", "2"];
        let mut made = Command::new("openssl");
        made.args(["req", "-x509"]).args(key).args(files).args(name).current_dir(folder);
        if !made.output().ok()?.status.success() {
            return None;
        }
        let serve = |address: &str| {
            let mut server = Command::new("openssl");
            server.args(["s_server", "-quiet", "-WWW", "-cert", "ca.pem", "-key", "key.pem"]);
            server.args(["-accept", address]);
            server
        };
        Self::start(serve, folder)
    }

    /// That of Python; none where there is no Python.
    fn plain(folder: &TempDir) -> Option<Self> {
        let serve = |address: &str| {
            let (host, port) = address.split_once(':').unwrap();
            let mut server = Command::new("python3");
            server.args(["-m", "http.server", "--bind", host, port]);
            server
        };
        Self::start(serve, folder)
    }

    fn start(serve: impl Fn(&str) -> Command, folder: &TempDir) -> Option<Self> {
        // It was free a moment ago.
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let address = free.to_string();
        let mut command = serve(&address);
        command.current_dir(folder).stdin(Stdio::null()).stdout(Stdio::null());
        let child = command.stderr(Stdio::null()).spawn().ok()?;
        let server = Self { child, address };
        for _ in 0..500 {
            if TcpStream::connect(free).is_ok() {
                return Some(server);
            }
            thread::sleep(Duration::from_millis(10));
        }
        None
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Answers one request with this many bytes.
fn serve(mut stream: TcpStream, bytes: u64) {
    let (mut head, block) = (Vec::new(), vec![0; 1024 * 1024]);
    let mut buffer = [0; 4096];
    while !head.ends_with(b"\r\n\r\n") {
        let read = stream.read(&mut buffer).unwrap();
        assert!(read > 0, "no request");
        head.extend_from_slice(&buffer[..read]);
    }
    let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {bytes}\r\nConnection: close\r\n\r\n");
    stream.write_all(answer.as_bytes()).unwrap();
    let mut left = bytes;
    while left > 0 {
        let piece = left.min(block.len() as u64);
        stream.write_all(&block[..usize::try_from(piece).unwrap()]).unwrap();
        left -= piece;
    }
}

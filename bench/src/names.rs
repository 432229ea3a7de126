//! Network by name: what it adds to a call that connects to nothing, and the speed of a download
//! through its proxy.

use std::{
    fs,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    path::Path,
    thread,
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
    download(legwork, quick, report);
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

/// The same download, through the proxy and with all of the network.
fn download(legwork: &Path, quick: bool, report: &mut Report) {
    let bytes: u64 = if quick { 500_000_000 } else { 2_000_000_000 };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            thread::spawn(move || serve(stream.unwrap(), bytes));
        }
    });
    let workspace = TempDir::new().unwrap();
    let allow = format!("allow = [\"{address}\"]");
    let mut through = client(legwork, workspace.path(), "names", &allow);
    let mut direct = client(legwork, workspace.path(), "all", "");
    // The environment excepts the loopback from the proxy, and this server is there.
    let fetch =
        format!("curl -sS --noproxy '' -o /dev/null -w '%{{speed_download}}' http://{address}/");
    let speed = |client: &mut Client| {
        let receipt = client.run(&fetch);
        let (_, bytes) = receipt.rsplit_once('\n').unwrap();
        bytes.trim().parse::<f64>().unwrap() / 1e6
    };
    let (mut ours, mut raw) = (Vec::new(), Vec::new());
    for _ in 0..if quick { 3 } else { 7 } {
        ours.push(speed(&mut through));
        raw.push(speed(&mut direct));
    }
    let what = format!("download of {} MB through the proxy against direct", bytes / 1_000_000);
    report.compare(&what, median(&ours), median(&raw), "MB/s", ">= 0.8");
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

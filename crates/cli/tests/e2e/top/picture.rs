//! The picture of `legwork top` in README and in the book, made from a real screen.
//!
//! `LEGWORK_UPDATE_DOCS=1 cargo test -p legwork-cli --test e2e top::picture` draws it anew.

use std::{fmt::Write, fs, os::unix::fs::PermissionsExt, path::Path};

use serde_json::json;

use super::tmux::Tmux;
use crate::{common::Scratch, mcp::Wire};

/// Where it is, from the root of the repository.
const PICTURE: &str = "docs/pictures/top.svg";

/// Bytes that it may have.
const BYTES_MAX: usize = 24 * 1024;

/// Size of a character.
const CELL: (f64, f64) = (8.4, 18.0);

/// Around the text.
const MARGIN: f64 = 12.0;

/// Programs that print what the real ones would.
const PROGRAMS: [(&str, &str); 4] = [
    (
        "npm",
        "printf '> shop@1.4.0 dev\\n> vite\\n\\n'; \
             printf '  \\033[32mVITE v6.2.0\\033[0m  ready in 412 ms\\n\\n'; \
             printf '  Local:   http://localhost:5173/\\n'; \
             printf '14:02:11 [vite] hmr update /src/cart.ts\\n'; \
             printf '14:02:19 [vite] hmr update /src/cart.ts\\n'; exec sleep 1000",
    ),
    ("cargo", "printf 'running 214 tests\\ntest result: ok. 214 passed\\n'"),
    (
        "pytest",
        "printf 'FAILED tests/test_cart.py::test_total\\n1 failed, 41 passed in 2.1s\\n'; exit 1",
    ),
    ("docker", "printf '[+] Building 8.2s\\n'; exec sleep 1000"),
];

/// How a character looks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Look {
    is_bold: bool,
    is_dim: bool,
    is_reversed: bool,
    colour: Option<u8>,
}

impl Look {
    /// Takes the numbers of a sequence that changes it.
    fn take(&mut self, numbers: &str) {
        let mut numbers = numbers.split(';').map(|number| number.parse::<u8>().unwrap_or(0));
        while let Some(number) = numbers.next() {
            match number {
                0 => *self = Self::default(),
                1 => self.is_bold = true,
                2 => self.is_dim = true,
                7 => self.is_reversed = true,
                22 => (self.is_bold, self.is_dim) = (false, false),
                27 => self.is_reversed = false,
                30..38 => self.colour = Some(number - 30),
                38 | 48 => {
                    let (_, colour) = (numbers.next(), numbers.next());
                    self.colour = if number == 38 { colour } else { self.colour };
                }
                39 => self.colour = None,
                _ => {}
            }
        }
    }

    fn fill(self) -> &'static str {
        match self.colour {
            _ if self.is_reversed => "#0d1117",
            Some(1) => "#ff7b72",
            Some(2) => "#3fb950",
            Some(3) => "#d29922",
            _ if self.is_dim => "#8b949e",
            _ => "#e6edf3",
        }
    }
}

/// Words that look alike, with the column at which they begin.
type Piece = (usize, Look, String);

/// One row of a screen as pieces: blanks at the edges are no part of one, unless they are reversed,
/// and neither are several in the middle, since pictures fold them.
fn pieces(row: &str, look: &mut Look) -> Vec<Piece> {
    let mut pieces: Vec<Piece> = Vec::new();
    let mut column = 0;
    let mut rest = row;
    let mut is_blank = true;
    while let Some(first) = rest.chars().next() {
        if let Some(sequence) = rest.strip_prefix("\u{1b}[") {
            let end = sequence.find(|it: char| it.is_ascii_alphabetic()).unwrap();
            if sequence[end..].starts_with('m') {
                look.take(&sequence[..end]);
            }
            rest = &sequence[end + 1..];
            continue;
        }
        rest = &rest[first.len_utf8()..];
        let two_blanks = first == ' ' && (is_blank || rest.starts_with(' '));
        match pieces.last_mut() {
            _ if two_blanks => {}
            Some((at, last, text)) if last == look && *at + text.chars().count() == column => {
                text.push(first);
            }
            _ if first == ' ' => {}
            _ => pieces.push((column, *look, first.to_string())),
        }
        (is_blank, column) = (two_blanks, column + 1);
    }
    pieces
}

/// Where a row is reversed: columns from and to.
fn reversed(row: &str, mut look: Look) -> Option<(usize, usize)> {
    let (mut column, mut found) = (0, None::<(usize, usize)>);
    let mut rest = row;
    while let Some(first) = rest.chars().next() {
        if let Some(sequence) = rest.strip_prefix("\u{1b}[") {
            let end = sequence.find(|it: char| it.is_ascii_alphabetic()).unwrap();
            look.take(&sequence[..end]);
            rest = &sequence[end + 1..];
            continue;
        }
        if look.is_reversed {
            found = Some((found.map_or(column, |(from, _)| from), column + 1));
        }
        column += 1;
        rest = &rest[first.len_utf8()..];
    }
    found
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Draws a screen with its colours.
fn drawn(screen: &str, (columns, rows): (u16, u16)) -> String {
    let width = f64::from(columns) * CELL.0 + 2.0 * MARGIN;
    let height = f64::from(rows) * CELL.1 + 2.0 * MARGIN;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" \
         role=\"img\" aria-label=\"legwork top: tasks, output and a question\">\n\
         <rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"#0d1117\"/>\n\
         <g font-family=\"ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace\" font-size=\"14\">\n"
    );
    let mut look = Look::default();
    let across = |columns: usize| f64::from(u16::try_from(columns).unwrap()) * CELL.0;
    for (row, line) in (0u16..).zip(screen.lines()) {
        let top = MARGIN + f64::from(row) * CELL.1;
        if let Some((from, to)) = reversed(line, look) {
            let (x, width, height) = (MARGIN + across(from), across(to - from), CELL.1);
            let size = format!("width=\"{width:.1}\" height=\"{height:.0}\"");
            writeln!(svg, "<rect x=\"{x:.1}\" y=\"{top:.1}\" {size} fill=\"#e6edf3\"/>").unwrap();
        }
        for (column, look, text) in pieces(line, &mut look) {
            let bold = if look.is_bold { " font-weight=\"bold\"" } else { "" };
            let (x, y, fill) = (MARGIN + across(column), top + 13.5, look.fill());
            let text = text.trim_end();
            let length = across(text.chars().count());
            let text = escaped(text);
            let place = format!("x=\"{x:.1}\" y=\"{y:.1}\" textLength=\"{length:.1}\"");
            writeln!(svg, "<text {place} fill=\"{fill}\"{bold}>{text}</text>").unwrap();
        }
    }
    svg.push_str("</g>\n</svg>\n");
    svg
}

#[test]
fn colours_become_fills_and_text_is_escaped() {
    let svg =
        drawn("\u{1b}[1mtop\u{1b}[0m a<b\n\u{1b}[7;38;5;2m run \u{1b}[39m\u{1b}[27m", (10, 2));
    assert!(svg.contains("font-weight=\"bold\">top</text>"), "{svg}");
    assert!(svg.contains(">a&lt;b</text>"), "{svg}");
    assert!(svg.contains("width=\"42.0\" height=\"18\" fill=\"#e6edf3\"/>"), "{svg}");
    assert!(!svg.contains('\u{1b}'), "{svg}");
}

#[test]
fn the_picture_is_a_real_screen() {
    let scratch = Scratch::new();
    let shop = scratch.workspace.path().join("shop");
    let programs = shop.join("bin");
    fs::create_dir_all(&programs).unwrap();
    for (name, script) in PROGRAMS {
        fs::write(programs.join(name), format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(programs.join(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
    let home = scratch.workspace.path().to_str().unwrap().to_owned();
    let size = (100, 30);
    let Some(tmux) = Tmux::top(&scratch, size, &[("HOME", &home), ("TZ", "UTC")]) else { return };
    tmux.shows("No tasks");
    let mut mcp = scratch.guarded("mcp", "guarded", None);
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
    mcp.current_dir(&shop).env("PATH", path).env("HOME", &home);
    let mut wire = Wire::spawn(mcp);
    let client = json!({ "name": "claude-code", "version": "2" });
    let hello =
        json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client });
    wire.request("initialize", &hello);
    wire.write(json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }).to_string());
    for (cmd, yields) in [
        ("pytest -q tests", 10_000),
        ("cargo test --workspace", 10_000),
        ("git log --oneline -5 | cat", 10_000),
        ("docker build -t shop .", 0),
        ("npm run dev", 0),
    ] {
        let input = json!({ "cmd": cmd, "login": false, "yield_time_ms": yields });
        wire.tool("ExecCommand", &input);
    }
    let cmd = "rm -rf dist && npm run build";
    let ask = json!({ "name": "ExecCommand", "arguments": { "cmd": cmd, "login": false } });
    wire.send("tools/call", &ask);
    tmux.shows("[y] allow once");
    tmux.press(&["g"]);
    tmux.shows("│ 14:02:19 [vite] hmr update");
    let svg = drawn(&tmux.coloured(), size);
    for text in ["npm run dev", "exit 1", "rm -rf dist", "claude-code", "~/shop"] {
        assert!(svg.contains(text), "{text} is missing: {svg}");
    }
    assert!(!svg.contains(&home), "a path of this machine: {svg}");
    assert!(svg.len() < BYTES_MAX, "{} bytes", svg.len());
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(PICTURE);
    if std::env::var_os("LEGWORK_UPDATE_DOCS").is_some() {
        fs::create_dir_all(kept.parent().unwrap()).unwrap();
        fs::write(&kept, svg).unwrap();
    }
    assert!(fs::read_to_string(&kept).unwrap().starts_with("<svg "), "{}", kept.display());
    tmux.press(&["n"]);
    assert_eq!(wire.read()["result"]["isError"], true);
    drop(wire.stdin.take());
    wire.child.wait().unwrap();
}

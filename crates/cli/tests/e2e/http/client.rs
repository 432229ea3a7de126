//! A client that speaks HTTP/1.1 by hand.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    os::unix::net::UnixStream,
    time::Duration,
};

use serde_json::Value;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// What was answered.
#[derive(Debug, Clone)]
pub struct Reply {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: String,
}

impl Reply {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("no JSON: {self:?}"))
    }

    /// The result of a request that must succeed.
    #[track_caller]
    pub fn good(&self) -> Value {
        assert_eq!(self.status, 200, "{self:#?}");
        self.json()
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    /// The kind of the error.
    pub fn kind(&self) -> String {
        self.json()["error"]["kind"].as_str().unwrap_or_default().to_owned()
    }
}

trait Both: Read + Write {}

impl<T: Read + Write> Both for T {}

/// A connection.
pub struct Wire {
    reader: BufReader<Box<dyn Both>>,
    host: String,
}

impl Wire {
    pub fn connect(address: &str) -> Self {
        let (stream, host): (Box<dyn Both>, &str) =
            if let Some(path) = address.strip_prefix("unix:") {
                let stream = UnixStream::connect(path).unwrap();
                stream.set_read_timeout(Some(PATIENCE)).unwrap();
                (Box::new(stream), "localhost")
            } else {
                let host = address.strip_prefix("http://").unwrap();
                let stream = TcpStream::connect(host).unwrap();
                stream.set_read_timeout(Some(PATIENCE)).unwrap();
                (Box::new(stream), host)
            };
        Self { reader: BufReader::new(stream), host: host.to_owned() }
    }

    pub fn write(&mut self, bytes: &[u8]) {
        let stream = self.reader.get_mut();
        stream.write_all(bytes).unwrap();
        stream.flush().unwrap();
    }

    /// Writes, and says whether all of it could be: who is refused early may find nobody there.
    pub fn try_write(&mut self, bytes: &[u8]) -> bool {
        let stream = self.reader.get_mut();
        stream.write_all(bytes).and_then(|()| stream.flush()).is_ok()
    }

    /// Writes a request.
    pub fn request(&mut self, method: &str, path: &str, headers: &[(&str, String)], body: &str) {
        let mut head = format!("{method} {path} HTTP/1.1\r\n");
        if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
            head.push_str(&format!("Host: {}\r\n", self.host));
        }
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        if !body.is_empty() {
            let length = body.len();
            head.push_str(&format!("Content-Length: {length}\r\n"));
            if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-type")) {
                head.push_str("Content-Type: application/json\r\n");
            }
        }
        self.write(format!("{head}\r\n{body}").as_bytes());
    }

    /// Writes a request, and reads its answer.
    pub fn send(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, String)],
        body: &str,
    ) -> Reply {
        self.request(method, path, headers, body);
        self.read()
    }

    /// Reads a line; none at the end of the connection.
    fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        let count = self.reader.read_line(&mut line).unwrap_or(0);
        (count > 0).then(|| line.trim_end_matches(['\r', '\n']).to_owned())
    }

    /// Reads the head of an answer.
    pub fn head(&mut self) -> Option<Reply> {
        let status = self.line()?.split(' ').nth(1)?.parse().ok()?;
        let mut headers = Vec::new();
        loop {
            let line = self.line()?;
            let Some((name, value)) = line.split_once(": ") else { break };
            headers.push((name.to_owned(), value.to_owned()));
        }
        Some(Reply { status, headers, body: String::new() })
    }

    /// Reads an answer.
    #[track_caller]
    pub fn read(&mut self) -> Reply {
        let mut reply = self.head().unwrap();
        if let Some(length) = reply.header("content-length") {
            let mut body = vec![0; length.parse().unwrap()];
            self.reader.read_exact(&mut body).unwrap();
            reply.body = String::from_utf8(body).unwrap();
        } else {
            while let Some(chunk) = self.chunk() {
                reply.body.push_str(&chunk);
            }
        }
        reply
    }

    /// The next chunk of a body that is sent bit by bit; none at its end.
    pub fn chunk(&mut self) -> Option<String> {
        let size = usize::from_str_radix(&self.line()?, 16).unwrap();
        let mut chunk = vec![0; size];
        self.reader.read_exact(&mut chunk).unwrap();
        self.line();
        (size > 0).then(|| String::from_utf8(chunk).unwrap())
    }

    /// Everything up to the end of the connection.
    pub fn rest(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        self.reader.read_to_end(&mut rest).unwrap();
        rest
    }

    /// Whether the server has closed the connection; waits for that.
    pub fn is_closed(&mut self) -> bool {
        matches!(self.reader.fill_buf(), Ok([]) | Err(_))
    }
}

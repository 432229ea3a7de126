//! The variables of OpenTelemetry that say where traces go, and which are made.
//!
//! Traces are off unless an endpoint is named: most who run this program have no collector.

use std::time::Duration;

use super::sampling::Sampler;

/// Where a collector takes traces, below what is named for all signals.
const PATH: &str = "/v1/traces";

/// The port of `http://` without one.
const PORT: u16 = 80;

/// Longest time that can be set: more could not be added to the time that it is.
const TIME_MAX: Duration = Duration::from_secs(24 * 3600);

/// What traces need.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct OtlpSettings {
    pub host: String,
    pub port: u16,
    pub path: String,
    /// Headers of every request, such as a key.
    pub headers: Vec<(String, String)>,
    /// How long a request may take.
    pub timeout: Duration,
    /// What is said of this program.
    pub resource: Vec<(String, String)>,
    pub sampler: Sampler,
    /// Most spans that wait.
    pub queue_max: usize,
    /// Most spans of a request.
    pub batch_max: usize,
    /// How long spans wait for others.
    pub delay: Duration,
}

impl OtlpSettings {
    /// Reads them; none if traces are off, an error if they are wanted and cannot be had.
    pub(super) fn read(variable: impl Fn(&str) -> Option<String>) -> Result<Option<Self>, String> {
        // An empty one counts as none.
        let get = |name: &str| variable(name).filter(|value| !value.trim().is_empty());
        let of_otlp = |name: &str| {
            let own = get(&format!("OTEL_EXPORTER_OTLP_TRACES_{name}"));
            own.or_else(|| get(&format!("OTEL_EXPORTER_OTLP_{name}")))
        };
        let is_disabled =
            get("OTEL_SDK_DISABLED").is_some_and(|it| it.eq_ignore_ascii_case("true"));
        let exporter = get("OTEL_TRACES_EXPORTER").unwrap_or_else(|| "otlp".into());
        let endpoint = get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT").or_else(|| {
            let base = get("OTEL_EXPORTER_OTLP_ENDPOINT")?;
            Some(format!("{}{PATH}", base.trim_end_matches('/')))
        });
        let Some(endpoint) = endpoint.filter(|_| !is_disabled && exporter != "none") else {
            return Ok(None);
        };
        if exporter != "otlp" {
            return Err(format!("OTEL_TRACES_EXPORTER: `{exporter}` is not known, but `otlp` is"));
        }
        let protocol = of_otlp("PROTOCOL").unwrap_or_else(|| "http/protobuf".into());
        if protocol != "http/protobuf" {
            let problem =
                "is not spoken here, only `http/protobuf` is (port 4318 of most collectors)";
            return Err(format!("OTEL_EXPORTER_OTLP_PROTOCOL: `{protocol}` {problem}"));
        }
        let (host, port, path) = address(&endpoint)?;
        let number = |name: &str, usual: u64| match get(name) {
            None => Ok(usual),
            Some(text) => text.trim().parse().map_err(|_| format!("{name}: `{text}` is no number")),
        };
        let timeout_ms = match of_otlp("TIMEOUT") {
            None => 10_000,
            Some(text) => text.trim().parse().map_err(|_| {
                format!("OTEL_EXPORTER_OTLP_TIMEOUT: `{text}` is no number of milliseconds")
            })?,
        };
        let queue_max = number("OTEL_BSP_MAX_QUEUE_SIZE", 2048)?.clamp(1, 65_536);
        let batch_max = number("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", 512)?.clamp(1, queue_max);
        Ok(Some(Self {
            host,
            port,
            path,
            headers: of_otlp("HEADERS").map(|text| pairs(&text)).unwrap_or_default(),
            timeout: Duration::from_millis(timeout_ms).min(TIME_MAX),
            resource: resource(&get),
            sampler: Sampler::read(get("OTEL_TRACES_SAMPLER"), get("OTEL_TRACES_SAMPLER_ARG"))?,
            queue_max: usize::try_from(queue_max).unwrap_or(usize::MAX),
            batch_max: usize::try_from(batch_max).unwrap_or(usize::MAX),
            delay: Duration::from_millis(number("OTEL_BSP_SCHEDULE_DELAY", 5000)?).min(TIME_MAX),
        }))
    }
}

/// Host, port and path of an endpoint.
fn address(endpoint: &str) -> Result<(String, u16, String), String> {
    let wrong = |problem: &str| format!("OTEL_EXPORTER_OTLP_ENDPOINT: `{endpoint}` {problem}");
    let Some(rest) = endpoint.trim().strip_prefix("http://") else {
        return Err(wrong(
            "is not `http://…`: for TLS, let a collector on this machine pass it on",
        ));
    };
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    // The brackets are those of an IPv6 address.
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => {
            (host, port.parse().map_err(|_| wrong("has no valid port"))?)
        }
        _ => (authority, PORT),
    };
    let is_plain = |it: char| it.is_ascii_graphic() && it != '@';
    if host.is_empty() || !rest.chars().all(is_plain) {
        return Err(wrong("is no address of a collector"));
    }
    let path = if path.is_empty() { "/" } else { path };
    Ok((host.to_owned(), port, path.to_owned()))
}

/// What is said of this program: the user's words count before ours.
fn resource(get: &impl Fn(&str) -> Option<String>) -> Vec<(String, String)> {
    let mut resource = get("OTEL_RESOURCE_ATTRIBUTES").map(|text| pairs(&text)).unwrap_or_default();
    if let Some(name) = get("OTEL_SERVICE_NAME") {
        resource.retain(|(known, _)| known != "service.name");
        resource.push(("service.name".into(), name));
    }
    let own = [
        ("service.name", "legwork"),
        ("service.version", env!("CARGO_PKG_VERSION")),
        ("telemetry.sdk.language", "rust"),
        ("telemetry.sdk.name", "legwork"),
        ("telemetry.sdk.version", env!("CARGO_PKG_VERSION")),
    ];
    for (name, value) in own {
        if !resource.iter().any(|(known, _)| known == name) {
            resource.push((name.into(), value.into()));
        }
    }
    resource
}

/// Pairs as `name=value,name=value`, with what is written as `%20`; anything else is passed over.
fn pairs(text: &str) -> Vec<(String, String)> {
    let pairs = text.split(',').filter_map(|pair| pair.split_once('='));
    let pairs = pairs.map(|(name, value)| (name.trim(), decoded(value.trim())));
    // No header may begin another one.
    let is_plain = |text: &str| !text.chars().any(char::is_control);
    let fits = |(name, value): &(&str, String)| {
        !name.is_empty() && name.chars().all(|it| it.is_ascii_graphic()) && is_plain(value)
    };
    pairs.filter(fits).map(|(name, value)| (name.to_owned(), value)).collect()
}

/// A text with what stands for other characters in it replaced.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, more)) = rest.split_first() {
        let code = more.get(..2).filter(|_| *first == b'%');
        let code = code.and_then(|code| std::str::from_utf8(code).ok());
        let code = code.and_then(|code| u8::from_str_radix(code, 16).ok());
        bytes.push(code.unwrap_or(*first));
        rest = if code.is_some() { more.get(2..).unwrap_or_default() } else { more };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Option<OtlpSettings>, String> {
        OtlpSettings::read(|name| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn traces_are_off_unless_an_endpoint_is_named_and_nothing_forbids_them() {
        const ENDPOINT: (&str, &str) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:4318");
        assert_eq!(read(&[]), Ok(None));
        assert_eq!(read(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "")]), Ok(None));
        assert_eq!(read(&[ENDPOINT, ("OTEL_SDK_DISABLED", "True")]), Ok(None));
        assert_eq!(read(&[ENDPOINT, ("OTEL_TRACES_EXPORTER", "none")]), Ok(None));
        assert!(read(&[ENDPOINT, ("OTEL_SDK_DISABLED", "false")]).unwrap().is_some());
        for wrong in [
            ("OTEL_TRACES_EXPORTER", "zipkin"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
            ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "https://collector:4318/v1/traces"),
            ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://:4318/v1/traces"),
            ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://host:port/v1/traces"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "soon"),
            ("OTEL_TRACES_SAMPLER", "sometimes"),
        ] {
            assert!(read(&[ENDPOINT, wrong]).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn what_is_said_of_traces_counts_before_what_is_said_of_all_signals() {
        let read = read(&[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318/base/"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "api-key=a%20b, x-other = c,broken,bad=%0d%0a"),
            ("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "250"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "1"),
            ("OTEL_SERVICE_NAME", "build machine"),
            ("OTEL_RESOURCE_ATTRIBUTES", "service.name=no,deployment.environment.name=test"),
        ]);
        let read = read.unwrap().unwrap();
        assert_eq!((&*read.host, read.port, &*read.path), ("collector", 4318, "/base/v1/traces"));
        let headers = [("api-key", "a b"), ("x-other", "c")];
        assert_eq!(read.headers, headers.map(|(name, value)| (name.into(), value.into())));
        assert_eq!(read.timeout, Duration::from_millis(250));
        let of = |name: &str| {
            let found = read.resource.iter().filter(|(known, _)| known == name);
            found.map(|(_, value)| value.as_str()).collect::<Vec<_>>()
        };
        assert_eq!(of("service.name"), ["build machine"]);
        assert_eq!(of("deployment.environment.name"), ["test"]);
    }

    #[test]
    fn an_endpoint_of_traces_is_taken_as_it_is() {
        let path = |endpoint| {
            let read = read(&[("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", endpoint)]).unwrap().unwrap();
            (read.host, read.port, read.path)
        };
        assert_eq!(path("http://[::1]:4318/x"), ("[::1]".into(), 4318, "/x".into()));
        assert_eq!(path("http://[::1]"), ("[::1]".into(), 80, "/".into()));
        assert_eq!(path("http://host"), ("host".into(), 80, "/".into()));
    }
}

//! The caller's place in a trace, as W3C's Trace Context writes it.

/// Most characters of a `tracestate` that are passed on.
const STATE_CHARS_MAX: usize = 512;

/// Where a call comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TraceParent {
    pub trace_id: [u8; 16],
    pub span_id: [u8; 8],
    pub is_sampled: bool,
    /// What systems before us have to say.
    pub state: String,
}

impl TraceParent {
    /// Reads `traceparent` with its `tracestate`; none if it is no valid one.
    pub(crate) fn read(parent: &str, state: Option<&str>) -> Option<Self> {
        let mut fields = parent.trim().split('-');
        let mut next = || fields.next();
        let (version, trace_id, span_id, flags) = (next()?, next()?, next()?, next()?);
        let [version] = bytes::<1>(version)?;
        // A later version may have more fields, and 255 is none.
        if version == 0xff || version == 0 && next().is_some() {
            return None;
        }
        let (trace_id, span_id) = (bytes::<16>(trace_id)?, bytes::<8>(span_id)?);
        let [flags] = bytes::<1>(flags)?;
        if trace_id == [0; 16] || span_id == [0; 8] {
            return None;
        }
        let is_plain = |state: &&str| {
            state.len() <= STATE_CHARS_MAX && state.bytes().all(|byte| (0x20..0x7f).contains(&byte))
        };
        let state = state.filter(is_plain).unwrap_or_default().to_owned();
        Some(Self { trace_id, span_id, is_sampled: flags & 1 == 1, state })
    }
}

/// Bytes that are written in small hexadecimal digits.
fn bytes<const N: usize>(text: &str) -> Option<[u8; N]> {
    data_encoding::HEXLOWER.decode(text.as_bytes()).ok()?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_valid_parent_is_read_and_any_other_passed_over() {
        const GOOD: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let parent = TraceParent::read(GOOD, Some("a=b")).unwrap();
        assert_eq!((parent.trace_id[0], parent.span_id[7]), (0x0a, 0x31));
        assert!(parent.is_sampled);
        assert_eq!(parent.state, "a=b");
        assert!(!TraceParent::read(&GOOD.replace("-01", "-00"), None).unwrap().is_sampled);
        assert!(TraceParent::read(&GOOD.replacen("00", "42", 1), None).is_some());
        assert_eq!(TraceParent::read(GOOD, Some("a\nb")).unwrap().state, "");
        for bad in [
            "",
            "00",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0AF7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b71692033-01",
        ] {
            assert_eq!(TraceParent::read(bad, None), None, "{bad}");
        }
    }
}

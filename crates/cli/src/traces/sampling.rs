//! Which calls are traced: what the caller has decided, or a share of all.

use super::parent::TraceParent;

/// Decides whether a call is traced.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Sampler {
    /// Whether the caller's decision counts.
    by_parent: bool,
    /// The share of the others.
    share: f64,
}

impl Sampler {
    /// The sampler of this name with this argument.
    pub(super) fn read(name: Option<String>, argument: Option<String>) -> Result<Self, String> {
        let name = name.unwrap_or_else(|| "parentbased_always_on".into());
        let (by_parent, kind) = match name.strip_prefix("parentbased_") {
            Some(kind) => (true, kind),
            None => (false, name.as_str()),
        };
        let share = match kind {
            "always_on" => 1.0,
            "always_off" => 0.0,
            "traceidratio" => {
                let share = argument.map_or(Ok(1.0), |text| text.trim().parse::<f64>());
                let share = share.ok().filter(|share| (0.0..=1.0).contains(share));
                share.ok_or("OTEL_TRACES_SAMPLER_ARG must be a number from 0 to 1")?
            }
            _ => return Err(format!("OTEL_TRACES_SAMPLER: `{name}` is not known")),
        };
        Ok(Self { by_parent, share })
    }

    /// Whether to trace a call of this trace.
    pub(super) fn takes(self, trace_id: [u8; 16], parent: Option<&TraceParent>) -> bool {
        if let Some(parent) = parent.filter(|_| self.by_parent) {
            return parent.is_sampled;
        }
        // All who sample by the id of a trace decide alike: its last seven bytes are random.
        let last = trace_id.iter().skip(9).fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte));
        #[expect(clippy::cast_precision_loss, reason = "56 bits are enough for a share")]
        let place = last as f64 / (1_u64 << 56) as f64;
        // The greatest place is one, for want of bits.
        self.share >= 1.0 || place < self.share
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parent_decides_and_a_share_is_by_the_id() {
        let sampler = |name: &str, argument: &str| {
            Sampler::read(Some(name.into()), Some(argument.into())).unwrap()
        };
        let parent = |is_sampled| TraceParent {
            trace_id: [0; 16],
            span_id: [0; 8],
            is_sampled,
            state: String::new(),
        };
        let (low, high) = ([0; 16], [0xff; 16]);
        let usual = Sampler::read(None, None).unwrap();
        assert!(usual.takes(high, None) && usual.takes(high, Some(&parent(true))));
        assert!(!usual.takes(high, Some(&parent(false))));
        assert!(sampler("always_on", "").takes(high, Some(&parent(false))));
        let half = sampler("traceidratio", "0.5");
        assert!(half.takes(low, None) && !half.takes(high, None));
        assert!(sampler("parentbased_traceidratio", "0").takes(low, Some(&parent(true))));
        assert!(!sampler("parentbased_always_off", "").takes(low, None));
        assert!(Sampler::read(Some("traceidratio".into()), Some("2".into())).is_err());
    }
}

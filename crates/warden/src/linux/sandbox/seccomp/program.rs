//! The filter as the kernel's own instructions.

use super::{MAKES_FILE, When};

#[cfg(target_arch = "x86_64")]
pub(super) const ARCHITECTURE: u32 = 0xC000_003E;
#[cfg(target_arch = "aarch64")]
pub(super) const ARCHITECTURE: u32 = 0xC000_00B7;

/// Calls of the x32 interface have numbers of their own, which no rule names.
pub(super) const FOREIGN_CALLS: u32 = 0x4000_0000;

const NUMBER_AT: u32 = 0;
const ARCHITECTURE_AT: u32 = 4;

/// Where the low half of an argument is, on a little-endian machine.
fn argument_at(argument: u32) -> u32 {
    16 + 8 * argument
}

pub(super) fn prologue() -> Vec<libc::sock_filter> {
    vec![
        load(ARCHITECTURE_AT),
        jump(libc::BPF_JEQ, ARCHITECTURE, 1, 0),
        give(libc::SECCOMP_RET_KILL_PROCESS),
        load(NUMBER_AT),
        jump(libc::BPF_JGE, FOREIGN_CALLS, 0, 1),
        give(libc::SECCOMP_RET_ERRNO | libc::ENOSYS.cast_unsigned()),
    ]
}

/// Finds a call by halving: the kernel tries the program with every number there is when it takes
/// it.
pub(super) fn search(calls: &[(u32, Vec<libc::sock_filter>)]) -> Vec<libc::sock_filter> {
    const FEW: usize = 4;
    let (low, high) = calls.split_at(calls.len() / 2);
    let Some((first, _)) = high.first().filter(|_| calls.len() > FEW) else {
        let all = calls.iter().flat_map(|(_, code)| code.iter().copied());
        return all.chain([give(libc::SECCOMP_RET_ALLOW)]).collect();
    };
    let low = search(low);
    let over = u32::try_from(low.len()).unwrap_or(u32::MAX);
    let skip = statement(libc::BPF_JMP | libc::BPF_JA, over, 0, 0);
    [vec![jump(libc::BPF_JGE, *first, 0, 1), skip], low, search(high)].concat()
}

/// If the call is this one: looks at its conditions, and answers. Otherwise it goes on with the
/// number loaded.
pub(super) fn one_call(number: u32, conditions: &[When], answer: u32) -> Vec<libc::sock_filter> {
    let mut body = Vec::new();
    for condition in conditions {
        match *condition {
            When::Always => body.push(give(answer)),
            When::Bits { argument, bits } => body.extend([
                load(argument_at(argument)),
                jump(libc::BPF_JSET, bits, 0, 1),
                give(answer),
            ]),
            When::NoBits { argument, bits } => body.extend([
                load(argument_at(argument)),
                jump(libc::BPF_JSET, bits, 1, 0),
                give(answer),
            ]),
            When::Makes { flags, bits } => body.extend([
                load(argument_at(flags)),
                jump(libc::BPF_JSET, MAKES_FILE, 0, 3),
                load(argument_at(flags + 1)),
                jump(libc::BPF_JSET, bits, 0, 1),
                give(answer),
            ]),
            When::Is { argument, value } => body.extend([
                load(argument_at(argument)),
                jump(libc::BPF_JEQ, value, 0, 1),
                give(answer),
            ]),
            When::IsNot { argument, values } => {
                body.push(load(argument_at(argument)));
                for (place, value) in values.iter().enumerate() {
                    // Over the other comparisons and the answer.
                    let over = u8::try_from(values.len() - place).unwrap_or(0);
                    body.push(jump(libc::BPF_JEQ, *value, over, 0));
                }
                body.push(give(answer));
            }
        }
    }
    if !matches!(conditions, [When::Always]) {
        body.push(give(libc::SECCOMP_RET_ALLOW));
    }
    let over = u8::try_from(body.len()).unwrap_or(0);
    [vec![jump(libc::BPF_JEQ, number, 0, over)], body].concat()
}

fn load(offset: u32) -> libc::sock_filter {
    statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, offset, 0, 0)
}

fn give(answer: u32) -> libc::sock_filter {
    statement(libc::BPF_RET | libc::BPF_K, answer, 0, 0)
}

fn jump(compare: u32, value: u32, yes: u8, no: u8) -> libc::sock_filter {
    statement(libc::BPF_JMP | compare | libc::BPF_K, value, yes, no)
}

fn statement(code: u32, k: u32, jt: u8, jf: u8) -> libc::sock_filter {
    libc::sock_filter { code: u16::try_from(code).unwrap_or(0), jt, jf, k }
}

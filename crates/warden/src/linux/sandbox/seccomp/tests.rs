//! The program, run as the kernel would run it.

use super::{
    program::{ARCHITECTURE, FOREIGN_CALLS},
    *,
};

const ALLOW: u32 = libc::SECCOMP_RET_ALLOW;
const TELL: u32 = libc::SECCOMP_RET_USER_NOTIF;
const NO_SUCH_CALL: u32 = libc::SECCOMP_RET_ERRNO | libc::ENOSYS.cast_unsigned();

/// Runs a filter on a call; an argument's upper half is what a careless filter would be misled by.
fn answer(filter: &Filter, architecture: u32, number: u32, arguments: [u64; 6]) -> u32 {
    let mut data = Vec::new();
    data.extend(number.to_le_bytes());
    data.extend(architecture.to_le_bytes());
    data.extend(0_u64.to_le_bytes());
    data.extend(arguments.iter().flat_map(|argument| argument.to_le_bytes()));
    let (mut place, mut loaded) = (0, 0);
    for _ in 0..=filter.code.len() {
        let step = filter.code[place];
        place += 1;
        let code = u32::from(step.code);
        if code == libc::BPF_RET | libc::BPF_K {
            return step.k;
        }
        if code == libc::BPF_LD | libc::BPF_W | libc::BPF_ABS {
            let at = usize::try_from(step.k).unwrap();
            loaded = u32::from_le_bytes(data[at..at + 4].try_into().unwrap());
            continue;
        }
        if code == libc::BPF_JMP | libc::BPF_JA {
            place += usize::try_from(step.k).unwrap();
            continue;
        }
        let holds = match code & !(libc::BPF_JMP | libc::BPF_K) {
            libc::BPF_JEQ => loaded == step.k,
            libc::BPF_JGE => loaded >= step.k,
            libc::BPF_JSET => loaded & step.k != 0,
            other => panic!("unknown step {other:#x}"),
        };
        place += usize::from(if holds { step.jt } else { step.jf });
    }
    panic!("the program does not end");
}

fn of(filter: &Filter, call: c_long, arguments: &[u64]) -> u32 {
    let mut all = [0; 6];
    for (place, argument) in all.iter_mut().zip(arguments) {
        *place = *argument;
    }
    answer(filter, ARCHITECTURE, call.try_into().unwrap(), all)
}

fn filter() -> Filter {
    Filter::new(Sockets::Network, true, true, false)
}

#[test]
fn ordinary_calls_are_allowed_and_refused_ones_are_told() {
    let filter = filter();
    for call in [libc::SYS_read, libc::SYS_execve, libc::SYS_kill, libc::SYS_prctl, libc::SYS_mmap]
    {
        assert_eq!(of(&filter, call, &[]), ALLOW, "{call}");
    }
    for (name, call) in REFUSED.iter().chain(REFUSED_HERE) {
        assert_eq!(of(&filter, *call, &[]), TELL, "{name}");
        assert_eq!(name_of(*call), name.strip_prefix("SYS_"));
    }
    for call in UNKNOWN {
        assert_eq!(of(&filter, *call, &[]), NO_SUCH_CALL, "{call}");
    }
    // Every other number, whichever half of the search it is in; a socket of family 0 is none that
    // is known.
    let named = |call: &c_long| REFUSED.iter().chain(REFUSED_HERE).any(|(_, it)| it == call);
    for call in (0..600).filter(|call| !named(call) && !UNKNOWN.contains(call)) {
        let expected = if call == libc::SYS_socket { TELL } else { ALLOW };
        assert_eq!(of(&filter, call, &[]), expected, "{call}");
    }
}

#[test]
fn calls_of_another_architecture_end_the_process_or_do_not_exist() {
    let filter = filter();
    let i386 = 0x4000_0003;
    assert_eq!(answer(&filter, i386, 20, [0; 6]), libc::SECCOMP_RET_KILL_PROCESS);
    let number: u32 = libc::SYS_ptrace.try_into().unwrap();
    assert_eq!(answer(&filter, ARCHITECTURE, FOREIGN_CALLS | number, [0; 6]), NO_SUCH_CALL);
    assert_eq!(answer(&filter, ARCHITECTURE, u32::MAX, [0; 6]), NO_SUCH_CALL);
}

#[test]
fn flags_for_namespaces_are_found_among_others_and_none_is_needed_for_a_thread() {
    let filter = filter();
    let thread = u64::try_from(libc::CLONE_VM | libc::CLONE_THREAD | libc::CLONE_SIGHAND).unwrap();
    assert_eq!(of(&filter, libc::SYS_clone, &[thread]), ALLOW);
    for bit in [
        0x0002_0000_u64,
        0x0200_0000,
        0x0400_0000,
        0x0800_0000,
        0x1000_0000,
        0x2000_0000,
        0x4000_0000,
    ] {
        assert_eq!(of(&filter, libc::SYS_clone, &[thread | bit]), TELL, "{bit:#x}");
        assert_eq!(of(&filter, libc::SYS_unshare, &[bit]), TELL, "{bit:#x}");
    }
    // The bit of the time namespace is part of `clone`'s signal.
    assert_eq!(of(&filter, libc::SYS_clone, &[0x80]), ALLOW);
    assert_eq!(of(&filter, libc::SYS_unshare, &[0x80]), TELL);
}

#[test]
fn sockets_are_allowed_by_family() {
    let allowed = |sockets| -> Vec<u64> {
        let filter = Filter::new(sockets, false, true, false);
        (0..64).filter(|family| of(&filter, libc::SYS_socket, &[*family]) == ALLOW).collect()
    };
    assert_eq!(allowed(Sockets::Network), [1, 2, 10, 16]);
    assert_eq!(allowed(Sockets::Loopback), [1, 2, 10]);
    assert_eq!(allowed(Sockets::Local), [1]);
}

#[test]
fn typing_into_a_terminal_is_refused_whatever_the_upper_half_of_the_number() {
    let filter = filter();
    for request in [0x5412_u64, 0x541C, 0xFFFF_FFFF_0000_5412] {
        assert_eq!(of(&filter, libc::SYS_ioctl, &[0, request]), TELL, "{request:#x}");
    }
    assert_eq!(of(&filter, libc::SYS_ioctl, &[0, 0x5413]), ALLOW);
}

#[test]
fn bits_of_other_rights_are_found_in_modes_only_where_a_file_is_made() {
    let filter = filter();
    let create = u64::try_from(libc::O_CREAT | libc::O_WRONLY).unwrap();
    assert_eq!(of(&filter, libc::SYS_openat, &[0, 0, create, 0o4755]), TELL);
    assert_eq!(of(&filter, libc::SYS_openat, &[0, 0, create, 0o755]), ALLOW);
    // Without making a file the mode is whatever happened to be there.
    assert_eq!(of(&filter, libc::SYS_openat, &[0, 0, 0, 0o4755]), ALLOW);
    let folder = u64::try_from(libc::O_DIRECTORY).unwrap();
    assert_eq!(of(&filter, libc::SYS_openat, &[0, 0, folder, 0o4755]), ALLOW);
    assert_eq!(of(&filter, libc::SYS_fchmod, &[0, 0o2755]), TELL);
    assert_eq!(of(&filter, SYS_FCHMODAT2, &[0, 0, 0o4755]), TELL);
    let ordinary = Filter::new(Sockets::Network, false, true, false);
    assert_eq!(of(&ordinary, libc::SYS_fchmod, &[0, 0o2755]), ALLOW);
    assert_eq!(of(&ordinary, libc::SYS_fchmod, &[0, 0o4755]), TELL);
}

#[test]
fn without_somebody_to_tell_a_call_is_refused_all_the_same() {
    let filter = Filter::new(Sockets::Network, true, false, false);
    let refused = libc::SECCOMP_RET_ERRNO | libc::EPERM.cast_unsigned();
    assert_eq!(of(&filter, libc::SYS_ptrace, &[]), refused);
}

#[test]
fn what_is_executed_is_asked_about_only_where_a_rule_speaks_of_programs() {
    let execs = [libc::SYS_execve, libc::SYS_execveat];
    let answers = |told, tells_exec| {
        let filter = Filter::new(Sockets::Network, false, told, tells_exec);
        execs.map(|call| of(&filter, call, &[]))
    };
    assert_eq!(answers(true, false), [ALLOW; 2]);
    assert_eq!(answers(true, true), [TELL; 2]);
    // Nobody could answer.
    assert_eq!(answers(false, true), [ALLOW; 2]);
}

#[test]
fn a_proxy_has_threads_and_starts_nothing() {
    let refused = libc::SECCOMP_RET_ERRNO | libc::EPERM.cast_unsigned();
    let proxy = Filter::of_proxy(false);
    for call in STARTS {
        assert_eq!(of(&proxy, *call, &[]), refused, "{call}");
    }
    let thread = u64::from(libc::CLONE_THREAD.cast_unsigned() | libc::CLONE_VM.cast_unsigned());
    assert_eq!(of(&proxy, libc::SYS_clone, &[thread]), ALLOW);
    assert_eq!(of(&proxy, libc::SYS_clone, &[u64::from(libc::SIGCHLD.cast_unsigned())]), refused);
    let namespace = thread | u64::from(libc::CLONE_NEWUSER.cast_unsigned());
    assert_eq!(of(&proxy, libc::SYS_clone, &[namespace]), refused);
    // As everybody else: the library then takes the call whose flags can be seen.
    assert_eq!(of(&proxy, libc::SYS_clone3, &[]), NO_SUCH_CALL);
    for call in [libc::SYS_read, libc::SYS_splice, libc::SYS_connect, libc::SYS_accept4] {
        assert_eq!(of(&proxy, call, &[]), ALLOW, "{call}");
    }
}

//! The filter of system calls, as one program for the kernel.
//!
//! It is assembled here ([`program`]) and not by a library because one program has to give several
//! answers: a plain refusal, a refusal that is also told to the warden, and "no such call", by
//! which programs fall back to an older one. Calls that no rule names are allowed; the kernel knows
//! that beforehand and does not run the program for them.

mod program;

use std::ffi::c_long;

use self::program::{one_call, prologue, search};

/// How a filter answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FilterAnswer {
    /// It is told to the warden, which refuses it.
    Refuse,
    /// The warden is asked, and decides.
    Ask,
    /// Such a call does not exist here.
    Unknown,
}

/// When a rule holds for a call.
#[derive(Debug, Clone, Copy)]
enum When {
    Always,
    /// One of these bits of an argument is set.
    Bits {
        argument: u32,
        bits: u32,
    },
    /// A file would be made, by these flags, with one of these bits in its mode; the mode stands
    /// behind the flags.
    Makes {
        flags: u32,
        bits: u32,
    },
    /// None of these bits of an argument is set.
    NoBits {
        argument: u32,
        bits: u32,
    },
    /// An argument is this.
    Is {
        argument: u32,
        value: u32,
    },
    /// An argument is none of these.
    IsNot {
        argument: u32,
        values: &'static [u32],
    },
}

struct CallRule {
    call: c_long,
    when: When,
    answer: FilterAnswer,
}

const NEW_NAMESPACES: u32 = (libc::CLONE_NEWUSER
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWCGROUP)
    .cast_unsigned();

/// `CLONE_NEWTIME`, which shares its bit with the exit signal of `clone` and is only for `unshare`.
const NEW_TIME: u32 = 0x80;

const SET_USER_ID: u32 = 0o4000;
const SET_GROUP_ID: u32 = 0o2000;

/// The commands of `ioctl` that type into a terminal, by key or by selection.
const TYPE_INTO_TERMINAL: [u32; 2] = [0x5412, 0x541C];

/// Which sockets can be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sockets {
    /// All of the machine's network.
    Network,
    /// The same but netlink: there is nothing but a loopback of its own.
    Loopback,
    /// Only those between processes.
    Local,
    /// Of its own loopback alone: whoever may only read must not reach, by a socket in a folder
    /// that it reads, a program that may do more. Pairs of sockets can still be made.
    OwnLoopback,
    /// None.
    Nothing,
}

impl Sockets {
    /// Unix, IPv4, IPv6, netlink.
    fn families(self) -> &'static [u32] {
        match self {
            Self::Network => &[1, 2, 10, 16],
            Self::Loopback => &[1, 2, 10],
            Self::Local => &[1],
            Self::OwnLoopback => &[2, 10],
            Self::Nothing => &[],
        }
    }
}

/// Calls with their names.
macro_rules! named {
    ($($call:ident),* $(,)?) => { &[$((stringify!($call), libc::$call)),*] };
}

/// Calls that nothing but an administrator, a debugger or an attack needs.
const REFUSED: &[(&str, c_long)] = named![
    SYS_ptrace,
    SYS_process_vm_readv,
    SYS_process_vm_writev,
    SYS_process_madvise,
    SYS_pidfd_getfd,
    SYS_kcmp,
    SYS_keyctl,
    SYS_add_key,
    SYS_request_key,
    SYS_userfaultfd,
    SYS_perf_event_open,
    SYS_bpf,
    SYS_mount,
    SYS_umount2,
    SYS_pivot_root,
    SYS_chroot,
    SYS_open_tree,
    SYS_move_mount,
    SYS_fsopen,
    SYS_fsconfig,
    SYS_fsmount,
    SYS_fspick,
    SYS_mount_setattr,
    SYS_setns,
    SYS_open_by_handle_at,
    SYS_swapon,
    SYS_swapoff,
    SYS_reboot,
    SYS_kexec_load,
    SYS_init_module,
    SYS_finit_module,
    SYS_delete_module,
    SYS_acct,
    SYS_quotactl,
    SYS_syslog,
    SYS_settimeofday,
    SYS_clock_settime,
    SYS_clock_adjtime,
    SYS_adjtimex,
    SYS_sethostname,
    SYS_setdomainname,
    SYS_vhangup,
    SYS_fanotify_init,
];

/// The same, where the architecture has them.
#[cfg(target_arch = "x86_64")]
const REFUSED_HERE: &[(&str, c_long)] =
    named![SYS_iopl, SYS_ioperm, SYS_modify_ldt, SYS_kexec_file_load];
#[cfg(not(target_arch = "x86_64"))]
const REFUSED_HERE: &[(&str, c_long)] = &[];

/// Those of which only some uses are refused.
const REFUSED_IN_PART: &[(&str, c_long)] = named![
    SYS_clone,
    SYS_unshare,
    SYS_ioctl,
    SYS_socket,
    SYS_fchmod,
    SYS_fchmodat,
    SYS_mknodat,
    SYS_openat
];
#[cfg(target_arch = "x86_64")]
const REFUSED_IN_PART_HERE: &[(&str, c_long)] = named![SYS_chmod, SYS_creat, SYS_mknod, SYS_open];
#[cfg(not(target_arch = "x86_64"))]
const REFUSED_IN_PART_HERE: &[(&str, c_long)] = &[];

/// The name of a call that may be refused.
pub(in crate::linux) fn name_of(call: c_long) -> Option<&'static str> {
    let newer: &[(&'static str, c_long)] = &[("SYS_fchmodat2", SYS_FCHMODAT2)];
    let all = [REFUSED, REFUSED_HERE, REFUSED_IN_PART, REFUSED_IN_PART_HERE, newer].concat();
    let (name, _) = all.into_iter().find(|(_, number)| *number == call)?;
    name.strip_prefix("SYS_")
}

/// Calls whose arguments a filter cannot see, and for which programs have another way.
const UNKNOWN: &[c_long] = &[
    libc::SYS_clone3,
    libc::SYS_openat2,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
];

/// Calls that begin another program or process.
const STARTS: &[c_long] = &[
    libc::SYS_execve,
    libc::SYS_execveat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_fork,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_vfork,
];

/// Where the mode stands among the arguments of calls that give a file one.
const MODES: &[(c_long, u32)] = &[
    (libc::SYS_fchmod, 1),
    (libc::SYS_fchmodat, 2),
    (SYS_FCHMODAT2, 2),
    (libc::SYS_mknodat, 2),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_chmod, 1),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_creat, 1),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_mknod, 1),
];

/// Where the flags stand among the arguments of calls that may make a file.
const OPENS: &[(c_long, u32)] = &[
    (libc::SYS_openat, 2),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_open, 1),
];

/// The flags by which opening makes a file: with a name, or without one.
const MAKES_FILE: u32 = (libc::O_CREAT | libc::O_TMPFILE & !libc::O_DIRECTORY).cast_unsigned();

/// One number on every architecture.
const SYS_FCHMODAT2: c_long = 452;

/// Whether this kernel can tell the warden of refusals.
pub(super) fn can_tell() -> bool {
    const GET_NOTIF_SIZES: u32 = 3;
    // SAFETY: the kernel fills the structure, which is plain data.
    let sizes = unsafe {
        let mut sizes: libc::seccomp_notif_sizes = std::mem::zeroed();
        (libc::syscall(libc::SYS_seccomp, GET_NOTIF_SIZES, 0, &raw mut sizes) == 0).then_some(sizes)
    };
    // One that tells more than we have room for is not asked.
    sizes.is_some_and(|sizes| {
        usize::from(sizes.seccomp_notif) == size_of::<libc::seccomp_notif>()
            && usize::from(sizes.seccomp_notif_resp) == size_of::<libc::seccomp_notif_resp>()
    })
}

/// A program that can be given to the kernel.
#[derive(Debug)]
pub(in crate::linux) struct Filter {
    code: Vec<libc::sock_filter>,
    is_root: bool,
    /// Whether refusals are told to the warden.
    pub told: bool,
    /// Whether the warden is asked before anything is executed.
    tells_exec: bool,
}

impl Filter {
    /// The filter of a command that may make these sockets. `told` is whether refusals are told to
    /// the warden, `tells_exec` whether it is asked before anything is executed.
    pub(in crate::linux) fn new(
        sockets: Sockets,
        is_root: bool,
        told: bool,
        tells_exec: bool,
    ) -> Self {
        let mut rules = rules(sockets, is_root);
        let tells_exec = told && tells_exec;
        if tells_exec {
            let execs = [libc::SYS_execve, libc::SYS_execveat];
            let (when, answer) = (When::Always, FilterAnswer::Ask);
            rules.extend(execs.map(|call| CallRule { call, when, answer }));
        }
        Self::assembled(&rules, is_root, told, tells_exec)
    }

    fn assembled(rules: &[CallRule], is_root: bool, told: bool, tells_exec: bool) -> Self {
        let refuse = if told {
            libc::SECCOMP_RET_USER_NOTIF
        } else {
            libc::SECCOMP_RET_ERRNO | libc::EPERM.cast_unsigned()
        };
        let mut calls: Vec<(u32, Vec<libc::sock_filter>)> = grouped(rules)
            .into_iter()
            .map(|(call, answer, conditions)| {
                let answer = match answer {
                    FilterAnswer::Refuse => refuse,
                    FilterAnswer::Ask => libc::SECCOMP_RET_USER_NOTIF,
                    FilterAnswer::Unknown => libc::SECCOMP_RET_ERRNO | libc::ENOSYS.cast_unsigned(),
                };
                let number = u32::try_from(call).unwrap_or(u32::MAX);
                (number, one_call(number, &conditions, answer))
            })
            .collect();
        calls.sort_by_key(|(number, _)| *number);
        let mut code = prologue();
        code.extend(search(&calls));
        Self { code, is_root, told, tells_exec }
    }

    /// The filter of a proxy: it connects, has threads, and starts nothing.
    pub(super) fn of_proxy(is_root: bool) -> Self {
        let mut rules = rules(Sockets::Network, is_root);
        let refuse = |call, when| CallRule { call, when, answer: FilterAnswer::Refuse };
        rules.extend(STARTS.iter().map(|call| refuse(*call, When::Always)));
        let bits = libc::CLONE_THREAD.cast_unsigned();
        rules.push(refuse(libc::SYS_clone, When::NoBits { argument: 0, bits }));
        Self::assembled(&rules, is_root, false, false)
    }

    /// Whether the warden is asked before anything is executed.
    pub(super) fn asks_about_exec(&self) -> bool {
        self.tells_exec
    }

    /// The same with other sockets.
    pub(super) fn with(&self, sockets: Sockets) -> Self {
        Self::new(sockets, self.is_root, self.told, self.tells_exec)
    }

    /// As the kernel wants it; valid for as long as this is.
    pub(in crate::linux) fn program(&self) -> libc::sock_fprog {
        libc::sock_fprog {
            len: u16::try_from(self.code.len()).unwrap_or(0),
            filter: self.code.as_ptr().cast_mut(),
        }
    }
}

fn rules(sockets: Sockets, is_root: bool) -> Vec<CallRule> {
    let always = |answer| move |call: &c_long| CallRule { call: *call, when: When::Always, answer };
    let refuse = |call, when| CallRule { call, when, answer: FilterAnswer::Refuse };
    let refused = REFUSED.iter().chain(REFUSED_HERE).map(|(_, call)| call);
    let mut rules: Vec<CallRule> = refused.map(always(FilterAnswer::Refuse)).collect();
    rules.extend(UNKNOWN.iter().map(always(FilterAnswer::Unknown)));
    rules.push(refuse(libc::SYS_clone, When::Bits { argument: 0, bits: NEW_NAMESPACES }));
    rules.push(refuse(
        libc::SYS_unshare,
        When::Bits { argument: 0, bits: NEW_NAMESPACES | NEW_TIME },
    ));
    for value in TYPE_INTO_TERMINAL {
        rules.push(refuse(libc::SYS_ioctl, When::Is { argument: 1, value }));
    }
    let values = sockets.families();
    rules.push(refuse(libc::SYS_socket, When::IsNot { argument: 0, values }));
    // The owner of a file may make it a program of its own rights; for root that would be
    // everybody's way to root.
    let bits = if is_root { SET_USER_ID | SET_GROUP_ID } else { SET_USER_ID };
    for (call, argument) in MODES {
        rules.push(refuse(*call, When::Bits { argument: *argument, bits }));
    }
    for (call, flags) in OPENS {
        rules.push(refuse(*call, When::Makes { flags: *flags, bits }));
    }
    rules
}

/// The rules of each call together, in order of first mention.
fn grouped(rules: &[CallRule]) -> Vec<(c_long, FilterAnswer, Vec<When>)> {
    let mut groups: Vec<(c_long, FilterAnswer, Vec<When>)> = Vec::new();
    for rule in rules {
        match groups
            .iter_mut()
            .find(|(call, answer, _)| (*call, *answer) == (rule.call, rule.answer))
        {
            Some((_, _, conditions)) => conditions.push(rule.when),
            None => groups.push((rule.call, rule.answer, vec![rule.when])),
        }
    }
    groups
}
#[cfg(test)]
mod tests;

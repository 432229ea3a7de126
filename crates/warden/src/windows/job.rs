//! The job object of a command: everything that it starts is in it, is ended with it, and is
//! limited by it.

use std::{io, os::windows::io::OwnedHandle, ptr};

use windows_sys::Win32::{
    Foundation::{ERROR_INVALID_PARAMETER, HANDLE, WAIT_OBJECT_0},
    System::{
        JobObjects::{
            CreateJobObjectW, IsProcessInJob, JOB_OBJECT_LIMIT_ACTIVE_PROCESS,
            JOB_OBJECT_LIMIT_BREAKAWAY_OK, JOB_OBJECT_LIMIT_JOB_MEMORY, JOB_OBJECT_LIMIT_JOB_TIME,
            JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE, JOB_OBJECT_LIMIT_SILENT_BREAKAWAY_OK,
            JOBOBJECT_ASSOCIATE_COMPLETION_PORT, JOBOBJECT_BASIC_ACCOUNTING_INFORMATION,
            JOBOBJECT_BASIC_PROCESS_ID_LIST, JOBOBJECT_EXTENDED_LIMIT_INFORMATION,
            JOBOBJECTINFOCLASS, JobObjectAssociateCompletionPortInformation,
            JobObjectBasicAccountingInformation, JobObjectBasicProcessIdList,
            JobObjectExtendedLimitInformation, QueryInformationJobObject, SetInformationJobObject,
            TerminateJobObject,
        },
        Threading::{
            GetCurrentProcess, OpenProcess, PROCESS_QUERY_LIMITED_INFORMATION, PROCESS_SYNCHRONIZE,
            WaitForSingleObject,
        },
    },
};

use super::{
    api::{check, is_error, own, raw, size_of_u32},
    port::Port,
};
use crate::{
    protocol::{Limits, LiveResources},
    record::{LimitsInForce, UsedResources},
};

/// Most processes that are listed.
const LISTED_MAX: usize = 1024;

/// A job. Closing it ends everything in it, whoever closes it: so nothing outlives its warden.
#[derive(Debug)]
pub(super) struct Job {
    handle: OwnedHandle,
}

#[repr(C)]
struct List {
    head: JOBOBJECT_BASIC_PROCESS_ID_LIST,
    more: [usize; LISTED_MAX - 1],
}

impl Job {
    /// A job with these limits, whose changes are told to the port under this key.
    pub(super) fn new(limits: &Limits, port: &Port, key: usize) -> io::Result<Self> {
        let job = Self::limited(limits)?;
        let told = JOBOBJECT_ASSOCIATE_COMPLETION_PORT {
            CompletionKey: ptr::without_provenance_mut(key),
            CompletionPort: port.raw(),
        };
        job.set(JobObjectAssociateCompletionPortInformation, &told)?;
        Ok(job)
    }

    /// A job for a process that is being started: if this process ends before that is done, nobody
    /// would ever let the other one run.
    pub(super) fn while_starting() -> io::Result<Self> {
        Self::limited(&Limits::default())
    }

    fn limited(limits: &Limits) -> io::Result<Self> {
        // SAFETY: makes a new handle.
        let handle = unsafe { own(CreateJobObjectW(ptr::null(), ptr::null()))? };
        let job = Self { handle };
        job.set(JobObjectExtendedLimitInformation, &extended(limits))?;
        Ok(job)
    }

    /// Lets what is in it outlive it.
    pub(super) fn let_go(self) -> io::Result<()> {
        let no_limits = JOBOBJECT_EXTENDED_LIMIT_INFORMATION::default();
        self.set(JobObjectExtendedLimitInformation, &no_limits)
    }

    pub(super) fn raw(&self) -> HANDLE {
        raw(&self.handle)
    }

    fn set<T>(&self, class: JOBOBJECTINFOCLASS, information: &T) -> io::Result<()> {
        let pointer = ptr::from_ref(information).cast();
        // SAFETY: the structure is the one that belongs to the class, and lives until the end.
        check(unsafe { SetInformationJobObject(self.raw(), class, pointer, size_of_u32::<T>()) })
    }

    fn query<T>(&self, class: JOBOBJECTINFOCLASS, information: &mut T) -> io::Result<()> {
        let pointer = ptr::from_mut(information).cast();
        // SAFETY: as above.
        check(unsafe {
            QueryInformationJobObject(
                self.raw(),
                class,
                pointer,
                size_of_u32::<T>(),
                ptr::null_mut(),
            )
        })
    }

    /// Ends everything in it.
    pub(super) fn terminate(&self, code: u32) {
        // SAFETY: an open handle and a number.
        unsafe { TerminateJobObject(self.raw(), code) };
    }

    /// The processes in it that live, in ascending order. The list may name some that have ended,
    /// so each is looked at.
    pub(super) fn living(&self) -> Vec<u32> {
        let mut list =
            List { head: JOBOBJECT_BASIC_PROCESS_ID_LIST::default(), more: [0; LISTED_MAX - 1] };
        // Where there are more than fit, those that fit are listed.
        let _ = self.query(JobObjectBasicProcessIdList, &mut list);
        let count = (list.head.NumberOfProcessIdsInList as usize).min(LISTED_MAX);
        let first = list.head.ProcessIdList.first().copied();
        let listed = first.into_iter().chain(list.more).take(count);
        let mut pids: Vec<u32> = listed.filter_map(|pid| u32::try_from(pid).ok()).collect();
        pids.retain(|pid| self.is_living(*pid));
        pids.sort_unstable();
        pids
    }

    fn is_living(&self, pid: u32) -> bool {
        let access = PROCESS_QUERY_LIMITED_INFORMATION | PROCESS_SYNCHRONIZE;
        // SAFETY: a new handle, used while it is open.
        unsafe {
            match own(OpenProcess(access, 0, pid)) {
                Ok(process) => {
                    let mut inside = 0;
                    let is_ours = IsProcessInJob(raw(&process), self.raw(), &raw mut inside) == 0
                        || inside != 0;
                    is_ours && WaitForSingleObject(raw(&process), 0) != WAIT_OBJECT_0
                }
                Err(error) => !is_error(&error, ERROR_INVALID_PARAMETER),
            }
        }
    }

    /// What all in it used, and the most memory that they had.
    pub(super) fn used(&self) -> UsedResources {
        let mut account = JOBOBJECT_BASIC_ACCOUNTING_INFORMATION::default();
        let mut limits = JOBOBJECT_EXTENDED_LIMIT_INFORMATION::default();
        let _ = self.query(JobObjectBasicAccountingInformation, &mut account);
        let _ = self.query(JobObjectExtendedLimitInformation, &mut limits);
        UsedResources {
            user_us: microseconds(account.TotalUserTime),
            system_us: microseconds(account.TotalKernelTime),
            process_peak_bytes: limits.PeakProcessMemoryUsed as u64,
            tree_peak_bytes: Some(limits.PeakJobMemoryUsed as u64).filter(|bytes| *bytes > 0),
        }
    }

    /// What all in it use at this moment. The system counts a job's memory at its peak only.
    pub(super) fn live(&self) -> LiveResources {
        let used = self.used();
        LiveResources {
            user_us: used.user_us,
            system_us: used.system_us,
            memory_bytes: used.tree_peak_bytes.unwrap_or(0),
            processes: self.living().len() as u64,
        }
    }
}

/// Times of jobs are counted in tenths of microseconds.
fn microseconds(time: i64) -> u64 {
    time.unsigned_abs() / 10
}

fn extended(limits: &Limits) -> JOBOBJECT_EXTENDED_LIMIT_INFORMATION {
    let mut extended = JOBOBJECT_EXTENDED_LIMIT_INFORMATION::default();
    let basic = &mut extended.BasicLimitInformation;
    basic.LimitFlags = JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE;
    if let Some(most) = limits.processes_max {
        basic.LimitFlags |= JOB_OBJECT_LIMIT_ACTIVE_PROCESS;
        basic.ActiveProcessLimit = u32::try_from(most).unwrap_or(u32::MAX);
    }
    if let Some(most) = limits.cpu_ms_max {
        basic.LimitFlags |= JOB_OBJECT_LIMIT_JOB_TIME;
        basic.PerJobUserTimeLimit = i64::try_from(most).unwrap_or(i64::MAX).saturating_mul(10_000);
    }
    if let Some(most) = limits.memory_bytes_max {
        basic.LimitFlags |= JOB_OBJECT_LIMIT_JOB_MEMORY;
        extended.JobMemoryLimit = usize::try_from(most).unwrap_or(usize::MAX);
    }
    extended
}

/// Whether this process is in a job that ends with somebody else, and lets nothing out of it: then
/// the wardens that it starts end with that job, too.
pub fn is_held_by_job() -> bool {
    let (mut held, mut limits) = (0, JOBOBJECT_EXTENDED_LIMIT_INFORMATION::default());
    // SAFETY: without a job, that of this process is meant; the pointers are to locals.
    let known = unsafe {
        IsProcessInJob(GetCurrentProcess(), ptr::null_mut(), &raw mut held) != 0
            && held != 0
            && QueryInformationJobObject(
                ptr::null_mut(),
                JobObjectExtendedLimitInformation,
                (&raw mut limits).cast(),
                size_of_u32::<JOBOBJECT_EXTENDED_LIMIT_INFORMATION>(),
                ptr::null_mut(),
            ) != 0
    };
    let has = |flags| limits.BasicLimitInformation.LimitFlags & flags != 0;
    let lets_out = JOB_OBJECT_LIMIT_BREAKAWAY_OK | JOB_OBJECT_LIMIT_SILENT_BREAKAWAY_OK;
    known && has(JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE) && !has(lets_out)
}

/// Which limits a job holds, and which nothing here holds.
pub(super) fn in_force(limits: &Limits) -> LimitsInForce {
    let by_job = [limits.processes_max, limits.cpu_ms_max, limits.memory_bytes_max];
    let by_nobody = [("open files", limits.open_files_max), ("file size", limits.file_bytes_max)];
    let missing = by_nobody.into_iter().filter(|(_, limit)| limit.is_some());
    LimitsInForce {
        rlimits: false,
        cgroup_limits: by_job.iter().any(Option::is_some),
        missing: missing.map(|(name, _)| format!("{name}: Windows has no such limit")).collect(),
    }
}

//! Reads, writes and connections that go on while the warden does something else.

use std::{fmt, io, os::windows::io::OwnedHandle, ptr, sync::Arc};

use windows_sys::Win32::{
    Foundation::{ERROR_IO_PENDING, ERROR_PIPE_CONNECTED},
    Storage::FileSystem::{ReadFile, WriteFile},
    System::{
        IO::{CancelIoEx, GetOverlappedResult, OVERLAPPED},
        Pipes::ConnectNamedPipe,
        Threading::CreateEventW,
    },
};

use super::{
    api::{is_error, own, raw},
    port::Packet,
};

/// One operation at a time on a handle. Its memory is the system's while it goes on; dropping it
/// takes the operation back first.
pub(super) struct Operation {
    handle: Arc<OwnedHandle>,
    /// Set at its end; only asked when it is taken back.
    event: OwnedHandle,
    /// From `Box::into_raw`: neither moved nor aliased while the system writes to it.
    shared: *mut Shared,
    pending: bool,
}

/// The structure stands first: by its place the system names the operation.
#[repr(C)]
struct Shared {
    overlapped: OVERLAPPED,
    buffer: Vec<u8>,
}

impl Operation {
    pub(super) fn new(handle: Arc<OwnedHandle>) -> io::Result<Self> {
        // SAFETY: makes a new handle.
        let event = unsafe { own(CreateEventW(ptr::null(), 1, 0, ptr::null()))? };
        let shared = Shared { overlapped: OVERLAPPED::default(), buffer: Vec::new() };
        let shared = Box::into_raw(Box::new(shared));
        Ok(Self { handle, event, shared, pending: false })
    }

    /// Whether it goes on.
    pub(super) fn is_pending(&self) -> bool {
        self.pending
    }

    /// Whether a packet is about this.
    pub(super) fn is_meant(&self, packet: &Packet) -> bool {
        self.pending && packet.place == self.shared.addr()
    }

    /// Begins to read up to this much.
    pub(super) fn read(&mut self, bytes: u32) -> io::Result<()> {
        self.begin(|handle, shared| {
            shared.buffer.resize(bytes as usize, 0);
            let room = shared.buffer.as_mut_ptr();
            // SAFETY: buffer and structure stay where they are until the operation has ended.
            unsafe { ReadFile(handle, room, bytes, ptr::null_mut(), &raw mut shared.overlapped) }
        })
    }

    /// Begins to write.
    pub(super) fn write(&mut self, bytes: Vec<u8>) -> io::Result<()> {
        self.begin(|handle, shared| {
            shared.buffer = bytes;
            let length = u32::try_from(shared.buffer.len()).unwrap_or(u32::MAX);
            let bytes = shared.buffer.as_ptr();
            // SAFETY: as above.
            unsafe { WriteFile(handle, bytes, length, ptr::null_mut(), &raw mut shared.overlapped) }
        })
    }

    /// Begins to wait for a client; true is that there is one already.
    pub(super) fn connect(&mut self) -> io::Result<bool> {
        // SAFETY: as above.
        let begun = self.begin(|handle, shared| unsafe {
            ConnectNamedPipe(handle, &raw mut shared.overlapped)
        });
        match begun {
            Err(error) if is_error(&error, ERROR_PIPE_CONNECTED) => Ok(true),
            begun => begun.map(|()| false),
        }
    }

    /// Waits for its end; for what is known to end at once.
    pub(super) fn wait(&mut self) {
        let mut bytes = 0;
        // SAFETY: the structure is that of the operation that goes on.
        unsafe {
            let overlapped = &raw const (*self.shared).overlapped;
            GetOverlappedResult(raw(&*self.handle), overlapped, &raw mut bytes, 1);
        }
        self.pending = false;
    }

    /// It has ended: what was read, if it was a read of so many bytes.
    pub(super) fn ended(&mut self, bytes: u32) -> &[u8] {
        self.pending = false;
        // SAFETY: it has ended, so that the memory is ours alone.
        let shared = unsafe { &*self.shared };
        shared.buffer.get(..bytes as usize).unwrap_or_default()
    }

    fn begin(
        &mut self,
        call: impl FnOnce(windows_sys::Win32::Foundation::HANDLE, &mut Shared) -> i32,
    ) -> io::Result<()> {
        if self.pending {
            return Err(io::ErrorKind::ResourceBusy.into());
        }
        // SAFETY: nothing goes on, so that the memory is ours alone.
        let shared = unsafe { &mut *self.shared };
        shared.overlapped = OVERLAPPED { hEvent: raw(&self.event), ..OVERLAPPED::default() };
        if call(raw(&*self.handle), shared) == 0 {
            let error = io::Error::last_os_error();
            if !is_error(&error, ERROR_IO_PENDING) {
                return Err(error);
            }
        }
        // Even what is through at once is told to the port.
        self.pending = true;
        Ok(())
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        // SAFETY: the operation is taken back and its end waited for before its memory is freed,
        // which is done once.
        unsafe {
            if self.pending {
                let overlapped = &raw mut (*self.shared).overlapped;
                CancelIoEx(raw(&*self.handle), overlapped);
                let mut bytes = 0;
                GetOverlappedResult(raw(&*self.handle), overlapped, &raw mut bytes, 1);
            }
            drop(Box::from_raw(self.shared));
        }
    }
}

impl fmt::Debug for Operation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Operation(pending: {})", self.pending)
    }
}

//! The warden's own hidden console, which its command shares: output in UTF-8, and Ctrl-C.

use windows_sys::Win32::System::Console::{
    CTRL_C_EVENT, GenerateConsoleCtrlEvent, SetConsoleCP, SetConsoleCtrlHandler, SetConsoleOutputCP,
};

const UTF_8: u32 = 65001;

/// Prepares the console. The command heeds Ctrl-C, whatever our own parent was told to; we do not.
pub(super) fn prepare() {
    unsafe extern "system" fn unmoved(_event: u32) -> i32 {
        1
    }
    // SAFETY: numbers, and a function that touches nothing.
    unsafe {
        SetConsoleOutputCP(UTF_8);
        SetConsoleCP(UTF_8);
        // Whether Ctrl-C is ignored is inherited; a handler is not.
        SetConsoleCtrlHandler(None, 0);
        SetConsoleCtrlHandler(Some(unmoved), 1);
    }
}

/// Presses Ctrl-C: everything on the console is told.
pub(super) fn interrupt() {
    // SAFETY: numbers.
    unsafe { GenerateConsoleCtrlEvent(CTRL_C_EVENT, 0) };
}

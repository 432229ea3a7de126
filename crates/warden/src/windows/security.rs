//! Makes what only the current user may open.

use std::{io, os::windows::io::OwnedHandle, path::Path, ptr};

use windows_sys::Win32::{
    Foundation::LocalFree,
    Security::{
        Authorization::{
            ConvertSidToStringSidW, ConvertStringSecurityDescriptorToSecurityDescriptorW,
            SDDL_REVISION_1,
        },
        DACL_SECURITY_INFORMATION, GetTokenInformation, PROTECTED_DACL_SECURITY_INFORMATION,
        PSECURITY_DESCRIPTOR, SECURITY_ATTRIBUTES, SetFileSecurityW, TOKEN_QUERY, TOKEN_USER,
        TokenUser,
    },
    System::Threading::{GetCurrentProcess, OpenProcessToken},
};

use super::api::{check, own, raw, size_of_u32, text_at, wide};

/// A description of who may open something: the current user, and nobody else.
#[derive(Debug)]
pub(super) struct Private {
    descriptor: PSECURITY_DESCRIPTOR,
}

impl Private {
    /// For an object without anything below it.
    pub(super) fn object() -> io::Result<Self> {
        Self::described(&format!("D:P(A;;GA;;;{})", own_sid()?))
    }

    /// For a file.
    pub(super) fn file() -> io::Result<Self> {
        Self::described(&format!("D:P(A;;FA;;;{})", own_sid()?))
    }

    /// For a folder: what is made in it is private, too.
    pub(super) fn folder() -> io::Result<Self> {
        Self::described(&format!("D:P(A;OICI;FA;;;{})", own_sid()?))
    }

    fn described(text: &str) -> io::Result<Self> {
        let text = wide(text);
        let mut descriptor = ptr::null_mut();
        // SAFETY: the text ends with a zero, and the pointer is to a local.
        check(unsafe {
            ConvertStringSecurityDescriptorToSecurityDescriptorW(
                text.as_ptr(),
                SDDL_REVISION_1,
                &raw mut descriptor,
                ptr::null_mut(),
            )
        })?;
        Ok(Self { descriptor })
    }

    /// Makes a file that is there so.
    pub(super) fn give_to(&self, path: &Path) -> io::Result<()> {
        let path = wide(path);
        let what = DACL_SECURITY_INFORMATION | PROTECTED_DACL_SECURITY_INFORMATION;
        // SAFETY: the text ends with a zero, and the description lives as long as this.
        check(unsafe { SetFileSecurityW(path.as_ptr(), what, self.descriptor) })
    }

    /// As a call takes it, for as long as this lives.
    pub(super) fn attributes(&self, inherited: bool) -> SECURITY_ATTRIBUTES {
        SECURITY_ATTRIBUTES {
            nLength: size_of_u32::<SECURITY_ATTRIBUTES>(),
            lpSecurityDescriptor: self.descriptor,
            bInheritHandle: i32::from(inherited),
        }
    }
}

impl Drop for Private {
    fn drop(&mut self) {
        // SAFETY: the system has allocated it for us, and it is freed once.
        unsafe { LocalFree(self.descriptor) };
    }
}

/// The number of the current user, as a text.
fn own_sid() -> io::Result<String> {
    let token = own_token()?;
    let mut room = [0_u64; 64];
    let mut size = 0;
    // SAFETY: the room is as long as it is said to be, and aligned for the structure.
    unsafe {
        check(GetTokenInformation(
            raw(&token),
            TokenUser,
            room.as_mut_ptr().cast(),
            size_of_u32::<[u64; 64]>(),
            &raw mut size,
        ))?;
        let user = &*room.as_ptr().cast::<TOKEN_USER>();
        let mut text = ptr::null_mut();
        check(ConvertSidToStringSidW(user.User.Sid, &raw mut text))?;
        let sid = text_at(text);
        LocalFree(text.cast());
        Ok(sid)
    }
}

fn own_token() -> io::Result<OwnedHandle> {
    let mut token = ptr::null_mut();
    // SAFETY: the pointer is to a local; the handle is a new one.
    unsafe {
        check(OpenProcessToken(GetCurrentProcess(), TOKEN_QUERY, &raw mut token))?;
        own(token)
    }
}

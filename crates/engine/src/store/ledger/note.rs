//! What a task's folder says of it: everything that its row was registered with.

use data_encoding::HEXLOWER;
use serde::{Deserialize, Serialize};

use super::task::Task;

/// Version of the note.
const VERSION: u32 = 1;

/// The file `spec`, as JSON.
#[derive(Debug, Serialize, Deserialize)]
struct Note {
    version: u32,
    #[serde(flatten)]
    task: Task,
    warden: String,
    boot_id: String,
    fingerprint: String,
}

/// The note of a task that is about to start.
pub(crate) fn write(task: &Task) -> Vec<u8> {
    let note = Note {
        version: VERSION,
        task: task.clone(),
        warden: task.warden.clone(),
        boot_id: task.boot_id.clone(),
        fingerprint: HEXLOWER.encode(&task.fingerprint),
    };
    serde_json::to_vec(&note).unwrap_or_default()
}

/// The task of a note; none if it is torn, or of a version that is not known here.
pub(super) fn read(bytes: &[u8]) -> Option<Task> {
    let note: Note = serde_json::from_slice(bytes).ok()?;
    if note.version != VERSION {
        return None;
    }
    let fingerprint = HEXLOWER.decode(note.fingerprint.as_bytes()).ok()?.try_into().ok()?;
    Some(Task { warden: note.warden, boot_id: note.boot_id, fingerprint, ..note.task })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::model::status::Status;

    fn task() -> Task {
        Task {
            task_id: "t_a".to_owned().into(),
            tool: "ExecCommand".into(),
            status: Status::Running,
            reason: None,
            command: "echo \"hi\"\n".into(),
            description: Some("says hi".into()),
            workdir: "/w".into(),
            shell: Some("/bin/sh".into()),
            login: true,
            tty: false,
            workspace: "/w".into(),
            asked_by: "a client".into(),
            trust: "trusted_operator".into(),
            created_at_ms: 1,
            updated_at_ms: 2,
            outcome: None,
            sandbox: Arc::default(),
            warden: "w".into(),
            boot_id: "b".into(),
            fingerprint: [7; 32],
        }
    }

    #[test]
    fn a_row_can_be_made_of_a_note_in_full() {
        assert_eq!(read(&write(&task())), Some(task()));
    }

    #[test]
    fn a_torn_note_and_one_of_another_version_are_not_guessed_at() {
        let whole = write(&task());
        assert_eq!(read(&whole[..whole.len() - 1]), None);
        let newer = String::from_utf8(whole).unwrap().replace("\"version\":1", "\"version\":2");
        assert_eq!(read(newer.as_bytes()), None);
    }
}

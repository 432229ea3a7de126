//! The scripted wardens as a place: what of it assumes a machine is made up.

use std::{
    borrow::Cow,
    ffi::{OsStr, OsString},
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use legwork_warden::{
    protocol::{FromWarden, version},
    record::{ExitRecord, RecordError},
};
use tokio::sync::watch;

use super::{
    super::{
        Channel, Folder, Inheritance, Look, NoProgram, Place, PlaceError, Ready, Sandbox, Soon,
        Warden,
    },
    Actor, Outbox, Scripted,
    line::Line,
};
use crate::{id::TaskId, model::sandbox::Wanted, output::TaskOutput};

impl Look for Scripted {
    fn variable(&self, _name: &str) -> Option<OsString> {
        None
    }

    fn find_program(&self, name: &OsStr, _workdir: &Path) -> Result<PathBuf, NoProgram> {
        Ok(Path::new("/nowhere").join(name))
    }

    fn real_program(&self, program: &Path) -> Option<PathBuf> {
        Some(program.to_owned())
    }

    fn can_be_planted(&self, _file: &Path) -> bool {
        false
    }

    fn open_folder(&self, path: &Path) -> io::Result<Folder> {
        Ok(Folder { path: path.to_owned(), handle: None })
    }

    fn is_still_there(&self, _folder: &Folder) -> bool {
        true
    }

    fn exists(&self, _path: &Path) -> bool {
        false
    }
}

impl Place for Scripted {
    fn boot_id(&self) -> Cow<'_, str> {
        Cow::Borrowed(&self.boot_id)
    }

    fn refusal_to_execute(&self, _program: &Path, _errno: i32) -> String {
        "the script says so".into()
    }

    fn appears<'a>(&'a self, _path: &'a Path) -> Soon<'a, ()> {
        Box::pin(std::future::pending())
    }

    fn warm_up(&self, _usual: Wanted) -> Soon<'_, io::Result<Option<u32>>> {
        Box::pin(async { Ok(None) })
    }

    fn close(&self) -> Soon<'_, ()> {
        Box::pin(async {})
    }

    fn ready(&self, _wanted: Wanted) -> Soon<'_, Result<Ready, PlaceError>> {
        let mut world = self.world();
        while let Some(warden) = world.idle.entry(self.mark.clone()).or_default().pop() {
            if world.wardens.get(&warden.name).is_some_and(|actor| actor.alive) {
                return Box::pin(async { Ok((warden, None)) });
            }
            // Its line is closed under the lock that we hold: later.
            let lost = warden;
            drop(world);
            drop(lost);
            world = self.world();
        }
        let name = format!("{}-{}", self.mark, world.next);
        world.next += 1;
        let outbox = Outbox { open: true, ..Outbox::default() };
        let actor = Actor { alive: true, run: None, wires: vec![outbox], owner: Some(0) };
        world.wardens.insert(name.clone(), actor);
        drop(world);
        let channel = Line::channel(&self.world, &name, 0);
        Box::pin(async { Ok((Warden::forked(name, channel), None)) })
    }

    fn give_back(&self, warden: Warden) {
        self.world().idle.entry(self.mark.clone()).or_default().push(warden);
    }

    fn known_sandbox(&self, _wanted: Wanted) -> Option<Arc<Sandbox>> {
        None
    }

    fn as_seen(&self, _wanted: Wanted, path: PathBuf) -> Soon<'_, Option<PathBuf>> {
        Box::pin(async { Some(path) })
    }

    fn refused_writes(&self, _wanted: Wanted, _paths: Vec<PathBuf>) -> Soon<'_, Vec<PathBuf>> {
        Box::pin(async { Vec::new() })
    }

    fn dial<'a>(&'a self, warden: &'a str) -> Soon<'a, io::Result<Channel>> {
        let mut world = self.world();
        world.pass(warden);
        let Some(actor) = world.wardens.get_mut(warden).filter(|actor| actor.alive) else {
            return Box::pin(async { Err(io::ErrorKind::NotFound.into()) });
        };
        actor.wires.push(Outbox { open: true, ..Outbox::default() });
        let wire = actor.wires.len() - 1;
        let task = actor.run.as_ref().map(|run| run.task.clone());
        world.say(warden, wire, FromWarden::Hello { version: version(), pid: 1, task });
        world.tell_end(warden);
        drop(world);
        let channel = Line::channel(&self.world, warden, wire);
        Box::pin(async { Ok(channel) })
    }

    fn is_alive(&self, warden: &str) -> io::Result<bool> {
        let mut world = self.world();
        world.pass(warden);
        Ok(world.wardens.get(warden).is_some_and(|actor| actor.alive))
    }

    fn is_owned(&self, warden: &str) -> bool {
        let mark = warden.split('-').next().unwrap_or_default();
        self.world().engines.iter().any(|engine| engine == mark)
    }

    fn inherit(&self, warden: &str) -> Option<Inheritance> {
        (!self.is_owned(warden)).then(Inheritance::default)
    }

    fn engines_ended(&self) -> watch::Receiver<u64> {
        self.ends.subscribe()
    }

    fn end_left_by(&self, _warden: &str) -> Vec<u32> {
        Vec::new()
    }

    fn clear_dead(&self, _dry_run: bool) -> u64 {
        0
    }

    fn output(&self, id: &TaskId) -> io::Result<TaskOutput> {
        let world = self.world();
        let (small, _) = world.folders.get(id.as_str()).ok_or(io::ErrorKind::NotFound)?;
        Ok(TaskOutput::from(small))
    }

    fn exit_record(&self, id: &TaskId) -> io::Result<Result<ExitRecord, RecordError>> {
        let world = self.world();
        let (_, record) = world.folders.get(id.as_str()).ok_or(io::ErrorKind::NotFound)?;
        Ok(record.clone().ok_or(RecordError::Empty))
    }

    fn has_stored(&self, id: &TaskId) -> bool {
        self.world().folders.contains_key(id.as_str())
    }

    fn note_stored(&self, _id: &TaskId) {}

    fn command_line(&self, _pid: u32) -> Option<String> {
        None
    }

    fn tell(&self, _program: Vec<String>, _line: String) -> Soon<'static, io::Result<()>> {
        Box::pin(async { Ok(()) })
    }
}

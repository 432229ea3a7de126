//! This program as it is known to other places: its hash; and the places that were used, so that
//! their tasks are reached by whoever looks at them, whatever the configuration says by then.

use std::{fs, io, os::unix::fs::MetadataExt, path::PathBuf};

use crate::{
    model::place::PlaceSettings,
    place::local::{hash, own_program},
    plain_file,
    state::{StateFolder, make_private},
};

/// The hash of this program.
pub(super) fn hash_of_this(state: &StateFolder) -> io::Result<String> {
    let data = own_program()?.metadata()?;
    // Reading a program takes a while: once is enough for each build of it.
    let key = format!(
        "{} {} {} {}.{}",
        data.dev(),
        data.ino(),
        data.len(),
        data.mtime(),
        data.mtime_nsec()
    );
    let kept = folder(state)?.join("program");
    let known = plain_file::read_text(&kept).unwrap_or_default();
    if let Some(hash) = known.strip_prefix(&key).and_then(|rest| rest.strip_prefix('\n')) {
        return Ok(hash.to_owned());
    }
    let hash = hash()?;
    write_whole(&kept, format!("{key}\n{hash}").as_bytes())?;
    Ok(hash)
}

/// Remembers a place that is used.
pub(super) fn remember(state: &StateFolder, settings: &PlaceSettings) -> io::Result<()> {
    let path = file_of(state, &settings.name)?;
    let text = serde_json::to_string_pretty(settings).map_err(io::Error::other)?;
    if plain_file::read_text(&path).is_ok_and(|known| known == text) {
        return Ok(());
    }
    write_whole(&path, text.as_bytes())
}

/// A place that was used, and may be configured no longer.
pub(crate) fn remembered(state: &StateFolder, name: &str) -> Option<PlaceSettings> {
    if !PlaceSettings::is_name(name) {
        return None;
    }
    let text = plain_file::read_text(&file_of(state, name).ok()?).ok()?;
    serde_json::from_str(&text).ok()
}

fn file_of(state: &StateFolder, name: &str) -> io::Result<PathBuf> {
    Ok(folder(state)?.join(format!("{name}.json")))
}

fn folder(state: &StateFolder) -> io::Result<PathBuf> {
    let folder = state.path().join("places");
    make_private(&folder)?;
    Ok(folder)
}

fn write_whole(path: &std::path::Path, bytes: &[u8]) -> io::Result<()> {
    let new = path.with_extension(format!("new-{}", std::process::id()));
    fs::write(&new, bytes)?;
    fs::rename(&new, path)
}

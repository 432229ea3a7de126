//! What a daybook begins with.

/// What tells one daybook from the one before it.
pub(in crate::store::ledger) type Generation = [u8; 16];

/// The first bytes. Those of builds from before version 1 were others.
const MAGIC: [u8; 8] = *b"LWBOOK01";

/// The magic, the generation, where the tasks end that were carried over, and a checksum.
pub(super) const HEADER_BYTES: usize = 36;

pub(super) fn write(generation: Generation, carried: u64) -> Vec<u8> {
    let mut header = [&MAGIC[..], &generation, &carried.to_le_bytes()].concat();
    header.extend(crc32fast::hash(&header).to_le_bytes());
    header
}

pub(super) fn read(header: &[u8; HEADER_BYTES]) -> Option<(Generation, u64)> {
    let (body, checksum) = header.split_last_chunk::<4>()?;
    if crc32fast::hash(body) != u32::from_le_bytes(*checksum) {
        return None;
    }
    let rest = body.strip_prefix(&MAGIC)?;
    let (generation, carried) = rest.split_first_chunk::<16>()?;
    Some((*generation, u64::from_le_bytes(carried.try_into().ok()?)))
}

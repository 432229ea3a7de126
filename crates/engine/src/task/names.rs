//! Connections by name: why they were refused, and the record of them.

use std::sync::atomic::Ordering::Relaxed;

use legwork_warden::network::{ConnectionTotal, HeldName, pattern_of};

use super::Tasks;
use crate::{
    events::EventKind,
    id::TaskId,
    model::{
        ConnectionRecord, ConnectionVerdict, Outcome, REFUSED_BY_PERSON, RefusedBy,
        network::NETWORK_LAYER,
    },
    store::audit::AuditEntry,
};

/// Says of each name that was asked about and not allowed why that was.
pub(super) fn explain(refused: &[(HeldName, String)], outcome: &mut Outcome) {
    if refused.is_empty() {
        return;
    }
    outcome.denials.retain(|denial| denial.layer != NETWORK_LAYER);
    for record in &mut outcome.connections {
        let pattern = pattern_of(&record.host, record.port);
        let why = refused.iter().find(|(held, _)| held.pattern() == pattern);
        if let Some((_, why)) = why.filter(|_| record.verdict == ConnectionVerdict::NotApproved) {
            record.reason.clone_from(why);
        }
        let by_person = record.reason.starts_with(REFUSED_BY_PERSON);
        outcome.denials.extend(record.denial().map(|mut denial| {
            if by_person {
                denial.by = RefusedBy::Person;
            }
            denial
        }));
    }
}

/// Notes what the connections of a command came to: in the audit log, for those who watch, and in
/// the counters.
pub(super) async fn note_connections(tasks: &Tasks, task_id: &TaskId, outcome: &Outcome) {
    note_all(tasks, task_id, &outcome.connections, None).await;
}

/// The same of what a command left running, after its end.
pub(super) async fn note_later(tasks: &Tasks, task_id: &TaskId, totals: &[ConnectionTotal]) {
    let records: Vec<ConnectionRecord> = totals.iter().map(ConnectionRecord::from).collect();
    note_all(tasks, task_id, &records, Some("after_end")).await;
}

async fn note_all(
    tasks: &Tasks,
    task_id: &TaskId,
    records: &[ConnectionRecord],
    when: Option<&str>,
) {
    for record in records {
        let ConnectionRecord { host, port, verdict, rule, reason, .. } = record;
        let entry = AuditEntry::new("connection")
            .own("task_id", task_id)
            .own("verdict", verdict)
            .own("port", port)
            .own("count", &record.count)
            .own("bytes_out", &record.bytes_out)
            .own("bytes_in", &record.bytes_in)
            .with("host", host.as_str())
            .with("rule", rule.as_str())
            .with("when", when)
            .with("reason", Some(reason.as_str()).filter(|reason| !reason.is_empty()));
        tasks.store.note(entry).await;
        let meters = &tasks.store.meters;
        meters.connections.note(record.is_refusal(), record.count);
        meters.connection_bytes_out.fetch_add(record.bytes_out, Relaxed);
        meters.connection_bytes_in.fetch_add(record.bytes_in, Relaxed);
        if record.is_refusal() {
            let (task_id, host, rule) = (task_id.clone(), host.clone(), rule.clone());
            let refused = EventKind::ConnectionRefused { task_id, host, port: *port, rule };
            tasks.store.ledger.happened(refused);
        }
    }
}

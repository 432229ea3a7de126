//! The judge's room: configuration, and questions to a person.

pub(crate) mod approval;
pub(crate) mod config;

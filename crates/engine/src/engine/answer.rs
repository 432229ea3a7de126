//! The answer to a call: an envelope that all tools share, and the text for a model.

use std::{
    borrow::Cow,
    fmt,
    sync::{Arc, OnceLock},
};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Tool;
use crate::{
    error::{ErrorKind, ToolError},
    model::sandbox::{MissingLayer, SandboxReport},
    output::Mask,
};

/// A result, as JSON: most callers want only the text that is made of it.
#[derive(Clone)]
pub enum ToolResult {
    /// It is at hand.
    Now(Value),
    /// It is made when somebody asks.
    Later(Arc<dyn Fn() -> Value + Send + Sync>),
}

impl ToolResult {
    fn value(&self) -> Value {
        match self {
            Self::Now(value) => value.clone(),
            Self::Later(make) => make(),
        }
    }
}

impl From<Value> for ToolResult {
    fn from(value: Value) -> Self {
        Self::Now(value)
    }
}

impl fmt::Debug for ToolResult {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value().fmt(formatter)
    }
}

/// What a tool brought.
#[derive(Debug, Clone)]
pub struct Success {
    /// The result, as its contract says.
    pub result: ToolResult,
    /// The result in one line.
    pub summary_text: Option<String>,
    /// The text for a model, where the tool has it at hand; it is what `render` would make of the
    /// result.
    pub receipt: Option<String>,
    /// The protection that the task had which it tells of; none if it tells of no task of its own.
    pub sandbox: Option<Arc<SandboxReport>>,
    /// Why the command did not run, where the result tells of that as of any other end.
    pub not_started: Option<ErrorKind>,
}

impl Success {
    /// A result, as the tool's contract says.
    pub fn new(result: impl Into<ToolResult>) -> Self {
        Self {
            result: result.into(),
            summary_text: None,
            receipt: None,
            sandbox: None,
            not_started: None,
        }
    }

    /// The same with a summary in one line.
    #[must_use]
    pub fn summary(mut self, summary: impl Into<String>) -> Self {
        self.summary_text = Some(summary.into());
        self
    }

    /// The same with the protection that its task had.
    #[must_use]
    pub fn sandbox(mut self, report: Arc<SandboxReport>) -> Self {
        self.sandbox = Some(report);
        self
    }
}

/// The answer to a call, in the form that all tools share. What is absent is left out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Envelope {
    /// The tool that was called.
    pub tool_name: String,
    /// Whether it did its part.
    pub status: EnvelopeStatus,
    /// The result in one line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub summary_text: Option<String>,
    /// The result.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<Value>,
    /// Why there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<ToolError>,
    /// Protections that the task should have had, and had not.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub sandbox_missing: Vec<MissingLayer>,
}

/// Whether a tool did its part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EnvelopeStatus {
    /// It did, whatever the command's exit code was.
    Success,
    /// It could not.
    Error,
}

/// An envelope together with the text for a model.
#[derive(Debug, Clone)]
pub struct Answer {
    tool_name: String,
    brought: Result<Brought, ToolError>,
    sandbox_missing: Vec<MissingLayer>,
    not_started: Option<ErrorKind>,
    receipt: String,
    envelope: OnceLock<Envelope>,
}

/// What a tool brought, and what must not be shown of it.
#[derive(Debug, Clone)]
struct Brought {
    result: ToolResult,
    summary_text: Option<String>,
    mask: Arc<Mask>,
}

impl Brought {
    /// The result as it is shown, and whether anything is masked in it.
    fn shown(&self) -> (Value, bool) {
        let mut result = self.result.value();
        let masked = self.mask.json(&mut result);
        (result, masked)
    }
}

impl Answer {
    /// The envelope.
    pub fn envelope(&self) -> &Envelope {
        self.envelope.get_or_init(|| {
            let (status, result, summary_text, error) = match &self.brought {
                Ok(brought) => {
                    let summary = brought.summary_text.as_deref();
                    let summary = summary.map(|text| brought.mask.text(text).into_owned());
                    (EnvelopeStatus::Success, Some(brought.shown().0), summary, None)
                }
                Err(error) => (EnvelopeStatus::Error, None, None, Some(error.clone())),
            };
            Envelope {
                tool_name: self.tool_name.clone(),
                status,
                summary_text,
                result,
                error,
                sandbox_missing: self.sandbox_missing.clone(),
            }
        })
    }

    /// The text for a model.
    pub fn receipt(&self) -> &str {
        &self.receipt
    }

    /// Why the call failed, if it did.
    pub fn error(&self) -> Option<&ToolError> {
        self.brought.as_ref().err()
    }

    /// Why the command did not run, if it did not: also where that is a result.
    pub fn failure(&self) -> Option<ErrorKind> {
        self.error().map(|error| error.kind).or(self.not_started)
    }

    /// The answer of a call that failed.
    pub fn failed(tool: &str, error: ToolError) -> Self {
        Self::new(tool, render_error(&error), Err(error))
    }

    pub(super) fn succeeded(tool: &dyn Tool, mask: Arc<Mask>, success: Success) -> Self {
        let Success { result, summary_text, receipt, sandbox, not_started } = success;
        let brought = Brought { result, summary_text, mask };
        // The receipt is made from the result: from the one that is shown, if that is another.
        let whole = receipt.filter(|text| matches!(brought.mask.text(text), Cow::Borrowed(_)));
        let receipt = whole.unwrap_or_else(|| {
            let mut receipt = tool.render(&brought.shown().0);
            brought.mask.string(&mut receipt);
            receipt
        });
        let mut answer = Self::new(tool.definition().name, receipt, Ok(brought));
        answer.not_started = not_started;
        if let Some(sandbox) = sandbox.filter(|report| !report.missing.is_empty()) {
            answer.lack(&sandbox.missing, tool.definition().text_is_json);
        }
        answer
    }

    fn new(tool: &str, receipt: String, brought: Result<Brought, ToolError>) -> Self {
        Self {
            tool_name: tool.to_owned(),
            brought,
            sandbox_missing: Vec::new(),
            not_started: None,
            receipt,
            envelope: OnceLock::new(),
        }
    }

    /// Says which protections the task should have had, and had not.
    fn lack(&mut self, missing: &[MissingLayer], text_is_json: bool) {
        self.sandbox_missing = missing.to_vec();
        if !text_is_json {
            let lines = missing.iter().map(|one| format!("{}: {}", one.layer, one.reason));
            let lines = lines.collect::<Vec<_>>().join("\n");
            self.receipt.push_str(&format!("\n\nProtection missing:\n{lines}"));
        }
    }
}

/// The text of an error; alone among the receipts it ends with a newline.
fn render_error(error: &ToolError) -> String {
    let pretty = serde_json::to_string_pretty(error).unwrap_or_else(|_| error.message.clone());
    format!("Command failed\n{pretty}\n")
}

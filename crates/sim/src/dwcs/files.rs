//! Parses and checks tasks and events in JSON. An error names the entry, its numbers and the remedy.

use std::collections::HashMap;

use qfabric_sched::dwcs::{BadTask, Task, TaskIndex};
use qfabric_types::{InvalidWindow, Window};
use serde::Deserialize;
use serde_json::Number;

/// Resolution of event times: parts of a tick.
pub const PARTS: u64 = 1_000_000;
/// Latest event time: 10¹² ticks.
const MAX_MOMENT: f64 = 1e12;
/// Largest number of tasks in one file.
pub const MAX_TASKS: usize = 10_000;
/// Largest number of events in one file.
pub const MAX_EVENTS: usize = 1_000_000;
/// Longest id in bytes, because each tick of the output repeats an id.
const MAX_ID: usize = 64;
/// Names that the timeline itself uses.
const RESERVED: [&str; 2] = ["BE", "idle"];

/// The reason for refusing a file.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// The text is not JSON, or has the wrong structure.
    #[error("{0}; {1}")]
    Json(serde_json::Error, &'static str),
    #[error("there are no tasks; give at least one")]
    NoTasks,
    #[error("the file has {0} entries, the limit is {1}; split the file")]
    TooMany(usize, usize),
    #[error(
        "task {place}: {id:?} is not a valid id; use 1 to {MAX_ID} bytes, but not BE or idle, which the timeline uses"
    )]
    Reserved {
        /// Position of the entry, from 1.
        place: usize,
        id: String,
    },
    #[error("task {place}: the id {id:?} was given to task {first} already; use a different id for each task")]
    Duplicate {
        /// Position of the entry, from 1.
        place: usize,
        id: String,
        /// Position of the first entry with this id.
        first: usize,
    },
    #[error("task {id}: {why}")]
    Window { id: String, why: InvalidWindow },
    /// The times of the task are invalid.
    #[error("task {id}: {why}")]
    Task { id: String, why: BadTask },
    #[error("event {place}: there is no task {sink:?}; the sink is one of {known}")]
    UnknownSink {
        /// Position of the entry, from 1.
        place: usize,
        sink: String,
        /// Names of the first tasks.
        known: String,
    },
    #[error("event {place}: {what} {value} is out of range; use 0 to {MAX_MOMENT:e} ticks")]
    Moment {
        /// Position of the entry, from 1.
        place: usize,
        /// `at` or `deadline`.
        what: &'static str,
        value: f64,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TaskEntry {
    id: String,
    period: u64,
    service: u64,
    window: (u64, u64),
    #[serde(default)]
    work_conserving: bool,
    #[serde(default)]
    arrival: u64,
    #[serde(default)]
    network_probability: u8,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EventEntry {
    at: Number,
    sink: String,
    #[serde(default)]
    deadline: Option<f64>,
}

/// The tasks, numbered in the order of their ids.
#[derive(Clone, Debug)]
pub struct TaskSet {
    tasks: Vec<Task>,
    ids: Vec<String>,
    /// Task numbers in the order of the file.
    in_file: Vec<usize>,
}

impl TaskSet {
    /// The tasks in the order of their ids.
    pub fn tasks(&self) -> &[Task] {
        &self.tasks
    }
    pub fn id(&self, task: usize) -> &str {
        &self.ids[task]
    }
    pub fn len(&self) -> usize {
        self.tasks.len()
    }
    /// Always false: an empty file is refused.
    pub fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }
    /// Task numbers in the order of the file.
    pub fn in_file(&self) -> &[usize] {
        &self.in_file
    }
    fn find(&self, id: &str) -> Option<usize> {
        self.ids.binary_search_by(|known| known.as_str().cmp(id)).ok()
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct RaisedEvent {
    /// Time of the event, in [`PARTS`] of a tick.
    pub at: u64,
    /// Time after which the event is useless, in [`PARTS`] of a tick.
    pub deadline: Option<u64>,
    /// The task to which the event goes.
    pub sink: TaskIndex,
    /// The time as the file states it.
    pub written_at: Number,
}

const TASK_SHAPE: &str = "a task is {\"id\":\"T1\",\"period\":4,\"service\":1,\"window\":[1,2]} and, optionally, \
                          work_conserving, arrival, network_probability (0 to 100); times are whole ticks";
const EVENT_SHAPE: &str = "an event is {\"at\":2.5,\"sink\":\"T1\"} and, optionally, deadline; times are in ticks";

/// Parses tasks.
///
/// # Errors
/// [`Refused`].
pub fn tasks(text: &str) -> Result<TaskSet, Refused> {
    let entries: Vec<TaskEntry> = serde_json::from_str(text).map_err(|error| Refused::Json(error, TASK_SHAPE))?;
    match entries.len() {
        0 => return Err(Refused::NoTasks),
        many if many > MAX_TASKS => return Err(Refused::TooMany(many, MAX_TASKS)),
        _ => check_ids(&entries)?,
    }
    let mut order: Vec<usize> = (0..entries.len()).collect();
    order.sort_by(|&a, &b| entries[a].id.cmp(&entries[b].id));
    let mut in_file = vec![0; entries.len()];
    order.iter().enumerate().for_each(|(number, &place)| in_file[place] = number);
    let tasks = order.iter().map(|&place| task(&entries[place])).collect::<Result<_, _>>()?;
    let ids = order.iter().map(|&place| entries[place].id.clone()).collect();
    Ok(TaskSet { tasks, ids, in_file })
}

fn check_ids(entries: &[TaskEntry]) -> Result<(), Refused> {
    let mut known = HashMap::new();
    for (place, TaskEntry { id, .. }) in (1..).zip(entries) {
        if !(1..=MAX_ID).contains(&id.len()) || RESERVED.contains(&id.as_str()) {
            return Err(Refused::Reserved { place, id: id.chars().take(MAX_ID).collect() });
        }
        if let Some(first) = known.insert(id, place) {
            return Err(Refused::Duplicate { place, id: id.clone(), first });
        }
    }
    Ok(())
}

fn task(entry: &TaskEntry) -> Result<Task, Refused> {
    let id = || entry.id.clone();
    let (x, y) = entry.window;
    let window = Window::new(x, y).map_err(|why| Refused::Window { id: id(), why })?;
    let task = Task::new(entry.period, entry.service, window)
        .and_then(|task| task.arriving(entry.arrival))
        .and_then(|task| task.network(entry.network_probability))
        .map_err(|why| Refused::Task { id: id(), why })?;
    Ok(task.work_conserving(entry.work_conserving))
}

/// Parses events for the tasks of `set`.
///
/// # Errors
/// [`Refused`].
pub fn events(text: &str, set: &TaskSet) -> Result<Vec<RaisedEvent>, Refused> {
    let entries: Vec<EventEntry> = serde_json::from_str(text).map_err(|error| Refused::Json(error, EVENT_SHAPE))?;
    if entries.len() > MAX_EVENTS {
        return Err(Refused::TooMany(entries.len(), MAX_EVENTS));
    }
    (1..).zip(&entries).map(|(place, entry)| event(place, entry, set)).collect()
}

fn event(place: usize, entry: &EventEntry, set: &TaskSet) -> Result<RaisedEvent, Refused> {
    let unknown = || Refused::UnknownSink { place, sink: entry.sink.clone(), known: known(set) };
    Ok(RaisedEvent {
        at: moment(place, "at", entry.at.as_f64().unwrap_or(f64::INFINITY))?,
        deadline: entry.deadline.map(|value| moment(place, "deadline", value)).transpose()?,
        sink: TaskIndex(set.find(&entry.sink).ok_or_else(unknown)?),
        written_at: entry.at.clone(),
    })
}

fn moment(place: usize, what: &'static str, value: f64) -> Result<u64, Refused> {
    match value {
        value if (0.0..=MAX_MOMENT).contains(&value) => Ok((value * PARTS as f64).round() as u64),
        _ => Err(Refused::Moment { place, what, value }),
    }
}

/// The names of the first eight tasks, and the number of further tasks.
fn known(set: &TaskSet) -> String {
    let shown: Vec<&str> = set.in_file.iter().take(8).map(|&task| set.id(task)).collect();
    let more = if set.len() > shown.len() { format!(" and {} more", set.len() - shown.len()) } else { String::new() };
    shown.join(", ") + &more
}

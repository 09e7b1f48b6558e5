//! Tasks and events as JSON: read, checked, refused with the entry, the numbers and the remedy.

use std::collections::HashMap;

use qfabric_sched::dwcs::{BadTask, Task, TaskIndex};
use qfabric_types::{InvalidWindow, Window};
use serde::Deserialize;
use serde_json::Number;

/// Parts of a tick in which moments of events are told apart.
pub const PARTS: u64 = 1_000_000;
/// Moments of events end here: a million million ticks.
const MAX_MOMENT: f64 = 1e12;
/// Tasks that one file may have.
pub const MAX_TASKS: usize = 10_000;
/// Events that one file may have.
pub const MAX_EVENTS: usize = 1_000_000;
/// Bytes of an id: it comes back in every tick.
const MAX_ID: usize = 64;
/// Names that the timeline uses itself.
const RESERVED: [&str; 2] = ["BE", "idle"];

/// What is wrong with a file.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// No JSON, or not of this shape.
    #[error("{0}; {1}")]
    Json(serde_json::Error, &'static str),
    /// Nothing to run.
    #[error("there are no tasks; give at least one")]
    NoTasks,
    /// Too much to run.
    #[error("{0} entries are more than {1}; split the file")]
    TooMany(usize, usize),
    /// The timeline could not name it.
    #[error(
        "task {place}: {id:?} is no id: the timeline says BE and idle itself; choose another of 1 to {MAX_ID} bytes"
    )]
    Reserved {
        /// Which entry, from 1.
        place: usize,
        /// Its id.
        id: String,
    },
    /// Two tasks of one name.
    #[error("task {place}: the id {id:?} was given to task {first} already; ids are unique")]
    Duplicate {
        /// Which entry, from 1.
        place: usize,
        /// Its id.
        id: String,
        /// Which entry had it first.
        first: usize,
    },
    /// Its window is none.
    #[error("task {id}: {why}")]
    Window {
        /// Whose.
        id: String,
        /// What is wrong with it.
        why: InvalidWindow,
    },
    /// Its times are none.
    #[error("task {id}: {why}")]
    Task {
        /// Whose.
        id: String,
        /// What is wrong with them.
        why: BadTask,
    },
    /// Nobody to bring it to.
    #[error("event {place}: there is no task {sink:?}; the sink is one of {known}")]
    UnknownSink {
        /// Which entry, from 1.
        place: usize,
        /// What it names.
        sink: String,
        /// What there is.
        known: String,
    },
    /// No moment.
    #[error("event {place}: {what} {value} is no moment; it lies between 0 and {MAX_MOMENT:e} ticks")]
    Moment {
        /// Which entry, from 1.
        place: usize,
        /// Which of its moments.
        what: &'static str,
        /// What was given.
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

/// Tasks, numbered in the order of their ids.
#[derive(Clone, Debug)]
pub struct TaskSet {
    tasks: Vec<Task>,
    ids: Vec<String>,
    /// Numbers in the order of the file.
    in_file: Vec<usize>,
}

impl TaskSet {
    /// In the order of their ids.
    pub fn tasks(&self) -> &[Task] {
        &self.tasks
    }
    /// Name of a task.
    pub fn id(&self, task: usize) -> &str {
        &self.ids[task]
    }
    /// How many.
    pub fn len(&self) -> usize {
        self.tasks.len()
    }
    /// Never.
    pub fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }
    /// Their numbers in the order of the file.
    pub fn in_file(&self) -> &[usize] {
        &self.in_file
    }
    fn find(&self, id: &str) -> Option<usize> {
        self.ids.binary_search_by(|known| known.as_str().cmp(id)).ok()
    }
}

/// An event of the file.
#[derive(Clone, Debug, PartialEq)]
pub struct RaisedEvent {
    /// When, in [`PARTS`] of a tick.
    pub at: u64,
    /// Until when it is of use, in the same.
    pub deadline: Option<u64>,
    /// Who is to run.
    pub sink: TaskIndex,
    /// When, as the file writes it.
    pub written_at: Number,
}

const TASK_SHAPE: &str = "a task is {\"id\":\"T1\",\"period\":4,\"service\":1,\"window\":[1,2]} and, optionally, \
                          work_conserving, arrival, network_probability (0 to 100); times are whole ticks";
const EVENT_SHAPE: &str = "an event is {\"at\":2.5,\"sink\":\"T1\"} and, optionally, deadline; moments are in ticks";

/// Reads tasks.
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

/// Reads events for the tasks of `set`.
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

/// The first few names.
fn known(set: &TaskSet) -> String {
    let shown: Vec<&str> = set.in_file.iter().take(8).map(|&task| set.id(task)).collect();
    let more = if set.len() > shown.len() { format!(" and {} more", set.len() - shown.len()) } else { String::new() };
    shown.join(", ") + &more
}

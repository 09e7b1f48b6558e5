//! One run: starts all processes, schedules them, gives them a common start, and collects their traces.

use anyhow::Result;
use qfabric_linux::clock;
use qfabric_types::{Instant, Nanos, ServerCounts, ThreadId, Window};

use crate::actor::Actor;
use crate::regime::{Competitor, Regime, Requirement, elevate};
use crate::role::{Player, Role, Server, Stream};
use crate::row::{Host, Played, Row, Task};
use crate::trace::Trace;
use crate::work::Work;
use qfabric_stream::sleep_until;

/// The part of a job's budget for its own system calls and for interrupts. The rest is computation.
const OVERHEAD: Nanos = Nanos::new(250_000);
/// Time from the scheduling of all processes to the common start.
const RUN_UP: Nanos = Nanos::from_millis(100);

/// A measured task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subject {
    /// T.
    pub period: Nanos,
    /// C: the job's computation and its overhead.
    pub budget: Nanos,
    /// First release after the start.
    pub phase: Nanos,
    /// x/y.
    pub window: Window,
    /// Whether the task receives frames from a server.
    pub frames: bool,
    /// Whether the task abandons late work.
    pub abandon: bool,
    /// The start of its server's periods.
    pub alignment: Alignment,
}

/// The start of a server's periods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Alignment {
    /// At the common start: the periods of all tasks lie on one grid, whenever their jobs begin.
    Grid,
    /// At the task's own first job.
    Own,
    /// At each demand that comes after a deadline (CBS): the scheduler does not know when jobs begin.
    Demand,
}

/// The tasks of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scene {
    /// Description in results.
    pub setting: String,
    /// The measured tasks.
    pub subjects: Vec<Subject>,
    /// Number of ordinary tasks that never sleep.
    pub hogs: usize,
    /// Number of ordinary tasks that start processes as fast as they can.
    pub forks: usize,
    /// Budget and period of a task under the competitor's scheduler that never ends a job.
    pub endless_loop: Option<(Nanos, Nanos)>,
}

impl Subject {
    fn role(&self, span: Nanos) -> Role {
        Role::Player(Player {
            period: self.period.get(),
            phase: self.phase.get(),
            cost: self.budget.saturating_sub(OVERHEAD).get(),
            span: span.get(),
            abandon: self.abandon,
            frames: self.frames,
        })
    }

    fn requirement(&self, start: Instant) -> Requirement {
        let Subject { period, budget, window, .. } = *self;
        let first = match self.alignment {
            Alignment::Grid => Some(start),
            Alignment::Own => Some(start + self.phase),
            Alignment::Demand => None,
        };
        Requirement { period, budget, window, first, work_conserving: false }
    }
}

/// Runs one competitor at one setting. If it refuses the tasks, the row contains the refusal.
pub fn run(experiment: &str, scene: &Scene, competitor: Competitor, span: Nanos, work: Work) -> Result<Row> {
    elevate(ThreadId(0), 60)?;
    let mut participants = Participants::assemble(scene, span, work)?;
    let mut regime = Regime::begin(competitor)?;
    let start = clock::now() + RUN_UP;
    let refused = participants.schedule(scene, &mut regime, start).err().map(|e| format!("{e:#}"));
    let (mut tasks, mut counted, mut others, mut traces) = Default::default();
    if refused.is_none() {
        (tasks, counted, others, traces) = participants.perform(scene, &regime, start, span)?;
    }
    let (setting, experiment) = (scene.setting.clone(), experiment.to_owned());
    let (host, played) = (Host::this(), Played { start, traces });
    Ok(Row { experiment, competitor, setting, x: 0.0, round: 0, refused, tasks, counted, others, host, played })
}

/// All processes of a run, ready to start.
struct Participants {
    subjects: Vec<Actor>,
    hogs: Vec<Actor>,
    endless: Option<Actor>,
    server: Option<Actor>,
}

impl Participants {
    fn assemble(scene: &Scene, span: Nanos, work: Work) -> Result<Participants> {
        let spawn = |role: Role| Actor::spawn(&role, work);
        let subjects = scene.subjects.iter().map(|s| spawn(s.role(span))).collect::<Result<Vec<_>>>()?;
        let storm = std::iter::repeat_n(Role::Forks, scene.forks);
        let hogs = std::iter::repeat_n(Role::Hog, scene.hogs).chain(storm).map(spawn).collect::<Result<_>>()?;
        let endless = scene.endless_loop.map(|_| spawn(Role::Hog)).transpose()?;
        let streams = streams(scene, &subjects);
        let server =
            (!streams.is_empty()).then(|| spawn(Role::Server(Server { streams, span: span.get() }))).transpose()?;
        Ok(Participants { subjects, hogs, endless, server })
    }

    fn schedule(&mut self, scene: &Scene, regime: &mut Regime, start: Instant) -> Result<()> {
        if let Some(server) = &self.server {
            elevate(server.thread(), 50)?;
        }
        for (actor, subject) in self.subjects.iter().zip(&scene.subjects) {
            regime.place(actor.thread(), subject.requirement(start))?;
        }
        if let (Some(actor), Some((budget, period))) = (&self.endless, scene.endless_loop) {
            let requirement =
                Requirement { period, budget, window: Window::NONE, first: Some(start), work_conserving: true };
            regime.place(actor.thread(), requirement)?;
        }
        Ok(())
    }

    /// Runs the tasks. Returns the results of the tasks, the counters of the scheduler, the CPUs that ordinary tasks
    /// got, and the jobs of the tasks.
    fn perform(mut self, scene: &Scene, regime: &Regime, start: Instant, span: Nanos) -> Result<Observations> {
        let all = self.subjects.iter_mut().chain(&mut self.hogs).chain(&mut self.endless).chain(&mut self.server);
        for actor in all {
            actor.begin(start)?;
        }
        sleep_until(start + span);
        let counted = regime.counts()?.into_iter().take(scene.subjects.len()).collect();
        let others = self.hogs.iter().fold(0.0, |sum, hog| sum + hog.cpu().as_secs_f64()) / span.as_secs_f64();
        drop((self.hogs, self.endless)); // late tasks end their last job undisturbed
        let traces = self.subjects.into_iter().map(Actor::finish).collect::<Result<Vec<_>>>()?;
        let tasks = traces.iter().zip(&scene.subjects).map(|(trace, subject)| Task::of(trace, subject.window));
        Ok((tasks.collect(), counted, others, traces))
    }
}

type Observations = (Vec<Task>, Vec<ServerCounts>, f64, Vec<Trace>);

fn streams(scene: &Scene, subjects: &[Actor]) -> Vec<Stream> {
    let listening = subjects.iter().zip(&scene.subjects).filter_map(|(actor, subject)| Some((actor.address?, subject)));
    listening.map(|(to, s)| Stream { to, period: s.period.get(), phase: s.phase.get() }).collect()
}

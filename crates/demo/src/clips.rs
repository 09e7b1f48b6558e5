//! The streams the demo decodes: made once per machine, kept in a cache.
//!
//! Problem: real video, no download, the same bytes at every run, and a decoding cost that loads this
//! machine as it is meant to. Approach: ffmpeg makes and encodes generated scenes; a short piece is decoded
//! first, on all CPUs at once, and the picture size chosen from what it cost. A clip's name carries the hash
//! of everything that went into it; it is written beside its place and renamed, so a name is a whole clip.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};

use crate::children::{Killed, Stop};
use crate::progress::Progress;
use crate::scenes::{self, Scene, Size};
use crate::trial;

/// How one clip is made.
#[derive(Clone, Debug)]
pub struct Recipe {
    /// Short name.
    pub name: &'static str,
    /// What a reader is told.
    pub title: &'static str,
    /// Its scenes and their frames.
    pub scenes: &'static [(Scene, u32)],
    /// How its pictures are grouped.
    pub groups: Groups,
    /// Mean share of one CPU its decoding should take at 25 frames a second.
    pub target: f64,
}

/// How the encoder groups pictures.
#[derive(Clone, Copy, Debug)]
pub struct Groups {
    /// Pictures from one I frame to the next, at most.
    pub longest: u32,
    /// B frames in a row, at most.
    pub b_frames: u32,
    /// Groups end at scene cuts and B frames come where they pay; otherwise all groups are alike.
    pub adaptive: bool,
}

impl Groups {
    /// ffmpeg's name of the encoder, and its options.
    fn encoder(self) -> String {
        let Groups { longest, b_frames, adaptive } = self;
        let choice = match adaptive {
            true => "-b_strategy 2 -brd_scale 3 -sc_threshold 0",
            false => "-b_strategy 0 -sc_threshold 1000000000",
        };
        format!("mpeg2video -g {longest} -bf {b_frames} {choice} -q:v 3")
    }
}

/// Closed pattern IBBPBBPBBPBB; the dear one.
pub const CLOSED: Recipe = Recipe {
    name: "closed",
    title: "MPEG-2, IBBPBBPBBPBB",
    scenes: &[(Scene::Pan, 36), (Scene::Over, 36), (Scene::Zoom, 36), (Scene::Life, 36)],
    groups: Groups { longest: 12, b_frames: 2, adaptive: false },
    target: 0.29,
};

/// Scene cuts and adaptive B frames; the light one.
pub const MIXED: Recipe = Recipe {
    name: "mixed",
    title: "MPEG-2, mixed groups of pictures",
    scenes: &[
        (Scene::Over, 29),
        (Scene::Life, 17),
        (Scene::Pan, 23),
        (Scene::Zoom, 31),
        (Scene::Life, 11),
        (Scene::Over, 33),
    ],
    groups: Groups { longest: 40, b_frames: 3, adaptive: true },
    target: 0.145,
};

/// No pattern: short scenes of all lengths, groups of pictures as the encoder likes; for the grid.
pub const UNPATTERNED: Recipe = Recipe {
    name: "unpatterned",
    title: "MPEG-2, no pattern",
    scenes: &[
        (Scene::Zoom, 5),
        (Scene::Life, 17),
        (Scene::Pan, 9),
        (Scene::Over, 23),
        (Scene::Life, 3),
        (Scene::Zoom, 14),
        (Scene::Over, 29),
        (Scene::Pan, 7),
        (Scene::Life, 37),
    ],
    groups: Groups { longest: 97, b_frames: 2, adaptive: true },
    target: 0.145,
};

impl Recipe {
    /// Frames of the clip.
    pub fn frames(&self) -> u32 {
        self.scenes.iter().map(|s| s.1).sum()
    }

    /// The same with each scene cut to a third: what calibration decodes.
    fn shortened(&self) -> Vec<(Scene, u32)> {
        self.scenes.iter().map(|&(scene, frames)| (scene, frames.div_ceil(3))).collect()
    }
}

/// A clip that lies in the cache.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Clip {
    /// The recipe's name.
    pub name: String,
    /// What a reader is told.
    pub title: String,
    /// Where it lies.
    pub path: PathBuf,
    /// Picture size.
    pub size: Size,
    /// Frames of one pass.
    pub frames: u32,
}

/// The folder clips are kept in: `$QFABRIC_CACHE`, `$XDG_CACHE_HOME/qfabric` or `~/.cache/qfabric`.
pub fn cache_folder() -> Result<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    set("QFABRIC_CACHE")
        .or_else(|| set("XDG_CACHE_HOME").map(|c| c.join("qfabric")))
        .or_else(|| set("HOME").map(|h| h.join(".cache/qfabric")))
        .context("no cache folder: set QFABRIC_CACHE to a folder that may be written")
}

/// Both clips, made where they are missing, at sizes that fit this machine.
pub fn ensure(cache: &Path, player: &Path, stop: &Stop, progress: &mut dyn Progress) -> Result<[Clip; 2]> {
    std::fs::create_dir_all(cache).with_context(|| {
        format!("cannot make {}: set QFABRIC_CACHE to a folder that may be written", cache.display())
    })?;
    let recipes = [&CLOSED, &MIXED];
    let sizes = calibrated(cache, player, recipes, stop, progress)?;
    let jobs: Vec<Making> =
        recipes.iter().zip(sizes).map(|(r, size)| Making::new(cache, r, r.scenes.to_vec(), size)).collect();
    let paths = make_all(&jobs, stop, progress)?;
    let clip = |i: usize| Clip {
        name: recipes[i].name.into(),
        title: recipes[i].title.into(),
        path: paths[i].clone(),
        size: sizes[i],
        frames: recipes[i].frames(),
    };
    Ok([clip(0), clip(1)])
}

/// The clip without a pattern, in the size of the `mixed` one, whose cost it shares.
pub fn unpatterned(cache: &Path, mixed: &Clip, stop: &Stop, progress: &mut dyn Progress) -> Result<Clip> {
    let recipe = &UNPATTERNED;
    let making = Making::new(cache, recipe, recipe.scenes.to_vec(), mixed.size);
    let path = make_all(&[making], stop, progress)?.remove(0);
    Ok(Clip { name: recipe.name.into(), title: recipe.title.into(), path, size: mixed.size, frames: recipe.frames() })
}

/// A clip costs at most this many times its design, or its design at most this many times the clip; the frame period
/// evens out the rest.
const FITS: f64 = 1.4;

/// By which factor the cost of a clip must change, where decoding it took `share` of one CPU at 25 frames a second;
/// none where it fits.
pub fn misfit(clip: &Clip, share: f64) -> Option<f64> {
    let factor = recipe(clip)?.target / share.max(1e-6);
    (!(1.0 / FITS..=FITS).contains(&factor)).then_some(factor)
}

/// The share of one CPU that decoding the clip is made to take at 25 frames a second.
pub fn designed_share(clip: &Clip) -> f64 {
    recipe(clip).map_or(0.0, |recipe| recipe.target)
}

fn recipe(clip: &Clip) -> Option<&'static Recipe> {
    [&CLOSED, &MIXED, &UNPATTERNED].into_iter().find(|recipe| recipe.name == clip.name)
}

/// The same clip in the size that costs `factor` times as much: one that lies in the cache where it fits, else a new
/// one.
pub fn resized(cache: &Path, clip: &Clip, factor: f64, stop: &Stop, progress: &mut dyn Progress) -> Result<Clip> {
    let recipe = recipe(clip).context("a clip of no recipe")?;
    let making = |size| Making::new(cache, recipe, recipe.scenes.to_vec(), size);
    let wanted = clip.size.scaled(factor);
    let cached = (Size::RANGE.0.0..=Size::RANGE.1.0).map(Size).filter(|&size| making(size).path.exists());
    let distance = |size: &Size| (2.0 * (f64::from(size.0) / f64::from(wanted.0)).ln()).abs();
    let nearest = cached.min_by(|a, b| distance(a).total_cmp(&distance(b))).filter(|size| distance(size) < FITS.ln());
    let size = nearest.unwrap_or(wanted);
    let path = make_all(&[making(size)], stop, progress)?.remove(0);
    Ok(Clip { path, size, ..clip.clone() })
}

/// The sizes at which decoding costs what the recipes say; measured once and kept.
fn calibrated(
    cache: &Path,
    player: &Path,
    recipes: [&Recipe; 2],
    stop: &Stop,
    progress: &mut dyn Progress,
) -> Result<[Size; 2]> {
    let jobs: Vec<Making> = recipes.iter().map(|r| Making::new(cache, r, r.shortened(), Size::FULL_HD)).collect();
    let targets = recipes.map(|r| r.target);
    let key = hash(&format!("{targets:?} {} {}", jobs[0].path.display(), jobs[1].path.display()));
    let kept = cache.join(format!("calibration-{key:016x}.json"));
    if let Some(sizes) = std::fs::read(&kept).ok().and_then(|text| serde_json::from_slice(&text).ok()) {
        return Ok(sizes);
    }
    let paths = make_all(&jobs, stop, progress)?;
    let costs = trial::shares_in_company(player, &paths, stop)?;
    let sizes: [Size; 2] = std::array::from_fn(|i| Size::FULL_HD.scaled(targets[i] / costs[i].max(1e-6)));
    write_whole(&kept, &serde_json::to_vec(&sizes)?)?;
    Ok(sizes)
}

/// One clip to be made.
struct Making {
    arguments: Vec<String>,
    frames: u32,
    path: PathBuf,
    title: String,
}

impl Making {
    fn new(cache: &Path, recipe: &Recipe, scenes: Vec<(Scene, u32)>, size: Size) -> Making {
        let frames = scenes.iter().map(|s| s.1).sum();
        let mut arguments = vec!["-filter_complex".into(), scenes::graph(&scenes, size)];
        let tail = ["-map", "[v]", "-r", "25", "-threads", "1", "-c:v"];
        arguments.extend(tail.into_iter().chain(recipe.groups.encoder().split(' ')).map(String::from));
        arguments.extend(["-fflags", "+bitexact", "-flags:v", "+bitexact", "-f", "matroska"].map(String::from));
        let key = hash(&arguments.join("\n"));
        let path = cache.join(format!("{}-{size}-{frames}-{key:016x}.mkv", recipe.name));
        Making { arguments, frames, path, title: format!("{} {size}", recipe.title) }
    }

    fn unfinished(&self) -> PathBuf {
        self.path.with_extension(format!("part{}", std::process::id()))
    }

    fn start(&self) -> Result<Killed> {
        let started = Command::new("ffmpeg")
            .args(["-v", "error", "-nostdin", "-y", "-progress", "pipe:1"])
            .args(&self.arguments)
            .arg(self.unfinished())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        match started {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                bail!("the program ffmpeg is not installed; try: apt-get install ffmpeg")
            }
            other => Ok(Killed::new(other.context("cannot start ffmpeg")?)),
        }
    }
}

/// Makes what is missing, all at once: one encoder thread each. Answers where the clips lie.
fn make_all(jobs: &[Making], stop: &Stop, progress: &mut dyn Progress) -> Result<Vec<PathBuf>> {
    let missing: Vec<&Making> = jobs.iter().filter(|job| !job.path.exists()).collect();
    if !missing.is_empty() {
        let titles: Vec<_> = missing.iter().map(|job| job.title.as_str()).collect();
        progress.stage(&format!("making {}", titles.join(" and ")), missing.iter().map(|j| j.frames as u64).sum());
        let made = make_missing(&missing, stop, progress);
        for job in &missing {
            // Left only where making failed; its absence is what we want.
            std::fs::remove_file(job.unfinished()).ok();
        }
        made?;
    }
    Ok(jobs.iter().map(|job| job.path.clone()).collect())
}

fn make_missing(missing: &[&Making], stop: &Stop, progress: &mut dyn Progress) -> Result<()> {
    let (frames_in, frames) = std::sync::mpsc::channel();
    let mut encoders = Vec::new();
    for (i, job) in missing.iter().enumerate() {
        let mut encoder = job.start()?;
        follow(encoder.child(), i, frames_in.clone());
        encoders.push(encoder);
    }
    drop(frames_in);
    let mut done = vec![0; missing.len()];
    while let Some((i, frame)) = next_report(&frames, stop)? {
        done[i] = frame;
        progress.advance(done.iter().sum());
    }
    for (encoder, job) in encoders.into_iter().zip(missing) {
        encoder.finish("ffmpeg")?;
        let unfinished = job.unfinished();
        ensure!(unfinished.exists(), "ffmpeg made nothing at {}", unfinished.display());
        std::fs::rename(&unfinished, &job.path)
            .with_context(|| format!("cannot keep the clip at {}", job.path.display()))?;
    }
    Ok(())
}

/// The next `(encoder, frames made)`; `None` when all encoders have closed their reports.
fn next_report(frames: &std::sync::mpsc::Receiver<(usize, u64)>, stop: &Stop) -> Result<Option<(usize, u64)>> {
    use std::sync::mpsc::RecvTimeoutError::{Disconnected, Timeout};
    for _ in 0..1_200 {
        stop.check()?;
        match frames.recv_timeout(std::time::Duration::from_millis(100)) {
            Ok(report) => return Ok(Some(report)),
            Err(Disconnected) => return Ok(None),
            Err(Timeout) => (),
        }
    }
    bail!("ffmpeg has made no frame for two minutes; is the disk full or the machine asleep?")
}

/// Reads an encoder's `-progress` report on a thread of its own, until the encoder closes it.
fn follow(encoder: &mut Child, i: usize, frames: std::sync::mpsc::Sender<(usize, u64)>) {
    let Some(report) = encoder.stdout.take() else { return };
    std::thread::spawn(move || {
        for line in BufReader::new(report).lines().map_while(Result::ok) {
            let frame = line.strip_prefix("frame=").and_then(|n| n.trim().parse().ok());
            if frame.is_some_and(|frame| frames.send((i, frame)).is_err()) {
                return;
            }
        }
    });
}

/// Writes a file that is either whole or not there.
pub(crate) fn write_whole(path: &Path, content: &[u8]) -> Result<()> {
    let unfinished = path.with_extension(format!("part{}", std::process::id()));
    let written = std::fs::File::create(&unfinished).and_then(|mut file| file.write_all(content));
    written
        .and_then(|()| std::fs::rename(&unfinished, path))
        .with_context(|| format!("cannot write {}", path.display()))
}

/// FNV-1a, 64 bits: the same on every machine and with every compiler.
fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |h, byte| (h ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::Silent;

    fn tiny(folder: &Path) -> Making {
        Making::new(folder, &CLOSED, vec![(Scene::Pan, 5), (Scene::Over, 5)], Size(1))
    }

    #[test]
    fn the_hash_is_the_published_one() {
        assert_eq!((hash(""), hash("a")), (0xcbf2_9ce4_8422_2325, 0xaf63_dc4c_8601_ec8c));
    }

    fn mixed(size: Size) -> Clip {
        Clip {
            name: MIXED.name.into(),
            title: MIXED.title.into(),
            path: "/cache/clips/mixed.mkv".into(),
            size,
            frames: 144,
        }
    }

    #[test]
    fn a_clip_that_costs_a_quarter_more_fits_and_one_that_costs_twice_as_much_does_not() {
        let clip = mixed(Size(20));
        assert_eq!(misfit(&clip, MIXED.target * 1.25), None);
        assert_eq!(misfit(&clip, 2.0 * MIXED.target), Some(0.5));
    }

    #[test]
    fn a_cached_size_is_taken_where_it_is_near_enough() {
        let folder = tempfile::tempdir().unwrap();
        let near = Making::new(folder.path(), &MIXED, MIXED.scenes.to_vec(), Size(15)).path;
        std::fs::write(&near, "a clip").unwrap();
        let clip = resized(folder.path(), &mixed(Size(20)), 0.5, &Stop::never(), &mut Silent).unwrap();
        assert_eq!((clip.size, clip.path), (Size(15), near), "14 would fit exactly");
    }

    #[test]
    fn another_recipe_is_another_name() {
        let folder = Path::new("/cache");
        let name = |scenes: &[(Scene, u32)], size| Making::new(folder, &CLOSED, scenes.to_vec(), size).path;
        let one = name(&[(Scene::Pan, 5)], Size(5));
        assert_ne!(one, name(&[(Scene::Life, 5)], Size(5)));
        assert_ne!(one, name(&[(Scene::Pan, 5)], Size(6)));
        assert_eq!(one, name(&[(Scene::Pan, 5)], Size(5)));
    }

    #[test]
    fn a_clip_is_made_once_and_is_the_same_each_time() {
        let bytes: Vec<Vec<u8>> = (0..2)
            .map(|_| {
                let folder = tempfile::tempdir().unwrap();
                let paths = make_all(&[tiny(folder.path())], &Stop::never(), &mut Silent).unwrap();
                let made = std::fs::metadata(&paths[0]).unwrap().modified().unwrap();
                make_all(&[tiny(folder.path())], &Stop::never(), &mut Silent).unwrap();
                assert_eq!(std::fs::metadata(&paths[0]).unwrap().modified().unwrap(), made);
                assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "something was left behind");
                std::fs::read(&paths[0]).unwrap()
            })
            .collect();
        assert!(bytes[0] == bytes[1] && bytes[0].len() > 1_000);
    }

    #[test]
    fn a_recipe_ffmpeg_refuses_leaves_nothing_and_says_why() {
        let folder = tempfile::tempdir().unwrap();
        let mut broken = tiny(folder.path());
        broken.arguments[1] = "nonsense[v]".into();
        let refusal = make_all(&[broken], &Stop::never(), &mut Silent).unwrap_err().to_string();
        assert!(refusal.contains("nonsense"), "{refusal}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}

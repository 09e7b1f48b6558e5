//! The contents of the clips: scenes from ffmpeg's lavfi sources, joined into one filter graph.
//!
//! Problem: the cost of decoding must vary as it does with a film. Approach: a grainy texture panned by whole
//! pixels (cheap P and B frames, expensive I frames), a pattern that moves over it, a zoom (every pixel changes),
//! and a cellular automaton (sharp edges everywhere). The scenes have no temporal noise, which would make every
//! frame as expensive as an I frame. Frames are counted, never timed, so two runs make the same bytes.

/// The source of a scene's pictures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scene {
    /// A texture panned by whole pixels.
    Pan,
    /// A test pattern that moves over the texture.
    Over,
    /// A zoom into the Mandelbrot set.
    Zoom,
    /// Conway's Game of Life with large cells.
    Life,
}

/// Width and height are `128·n` and `72·n` pixels for `Size(n)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct Size(pub u32);

impl Size {
    /// 1920x1080.
    pub const FULL_HD: Size = Size(15);
    /// Smallest and largest size: 640x360 to 3840x2160.
    pub const RANGE: (Size, Size) = (Size(5), Size(30));

    /// Width in pixels.
    pub fn width(self) -> u32 {
        self.0 * 128
    }
    /// Height in pixels.
    pub fn height(self) -> u32 {
        self.0 * 72
    }
    /// The size whose decoding costs `factor` times as much as this one. The cost is proportional to the number of
    /// pixels.
    pub fn scaled(self, factor: f64) -> Size {
        let units = (f64::from(self.0) * factor.max(0.0).sqrt()).round() as u32;
        Size(units.clamp(Size::RANGE.0.0, Size::RANGE.1.0))
    }
}

impl std::fmt::Display for Size {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(&format!("{}x{}", self.width(), self.height()))
    }
}

/// The filter graph that shows `scenes` one after another, each for its number of frames. Its output is `[v]`.
pub fn graph(scenes: &[(Scene, u32)], size: Size) -> String {
    let mut chains = String::new();
    let mut joined = String::new();
    for (i, &(scene, frames)) in scenes.iter().enumerate() {
        let source = source(scene, i, size);
        chains += &format!("{source},trim=end_frame={frames},format=yuv420p[s{i}];");
        joined += &format!("[s{i}]");
    }
    format!("{chains}{joined}concat=n={}:v=1[v]", scenes.len())
}

fn source(scene: Scene, i: usize, size: Size) -> String {
    let (w, h) = (size.width(), size.height());
    let texture = texture(size);
    match scene {
        Scene::Pan => format!("{texture},crop={w}:{h}:x='2*mod(n,160)':y='mod(n,200)'"),
        Scene::Over => format!(
            "{texture},crop={w}:{h}:x=20:y=20[a{i}];testsrc2=s={}x{}:r=25[b{i}];[a{i}][b{i}]overlay=x='4*n':y='2*n'",
            w / 2,
            h / 2
        ),
        Scene::Zoom => format!(
            "mandelbrot=s={}x{}:r=25:maxiter=200:end_scale=0.05:end_pts=200,scale={w}:{h}:flags=bilinear",
            w / 2,
            h / 2
        ),
        Scene::Life => format!(
            "life=s={}x{}:r=25:seed=9:mold=10:ratio=0.3:death_color=#C83232:life_color=#00ff00,\
             scale={w}:{h}:flags=neighbor",
            w / 8,
            h / 8
        ),
    }
}

/// One grainy picture, larger than the screen, repeated endlessly.
fn texture(size: Size) -> String {
    format!(
        "color=gray:s={}x{}:r=25,format=yuv420p,trim=end_frame=1,noise=alls=60:all_seed=7:allf=u,\
         gblur=sigma=0.8,loop=loop=-1:size=1,setpts=N/25/TB",
        size.width() + 320,
        size.height() + 200
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_scaled_by_its_pixels() {
        assert_eq!(Size::FULL_HD.scaled(4.0), Size(30));
        assert_eq!(Size::FULL_HD.scaled(1.0).to_string(), "1920x1080");
        assert_eq!((Size(15).scaled(1e9), Size(15).scaled(0.0)), (Size(30), Size(5)));
        assert_eq!(Size(15).scaled(f64::NAN), Size(5));
    }

    #[test]
    fn every_scene_ends_at_its_frame_and_is_joined_in_order() {
        let graph = graph(&[(Scene::Zoom, 3), (Scene::Over, 7)], Size(5));
        assert!(graph.contains("trim=end_frame=3,format=yuv420p[s0]") && graph.contains("trim=end_frame=7"));
        assert!(graph.ends_with("[s0][s1]concat=n=2:v=1[v]"), "{graph}");
    }
}

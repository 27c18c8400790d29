//! The parameters of the estimate: how many tokens media are taken for.

use epp_plugin_api::NodeError;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How many tokens media are taken for.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Estimate {
    /// What images are taken for.
    pub image: Image,
    /// What videos are taken for.
    pub video: Video,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Image {
    /// `dynamic`: by the size of the image; `static`: always the same. Default `dynamic`.
    pub mode: Mode,
    /// The size of images whose own cannot be read.
    pub default_resolution: Resolution,
    /// Counts in the mode `dynamic`.
    pub dynamic: Dynamic,
    /// Counts in the mode `static`.
    #[serde(rename = "static")]
    pub fixed: FixedImage,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Mode {
    #[default]
    Dynamic,
    Static,
}

/// Width and height in pixels; 0 counts as the default, 640 by 360.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Resolution {
    /// Pixels. 0 counts as 640. Default 0.
    width: u32,
    /// Pixels. 0 counts as 360. Default 0.
    height: u32,
}

impl Resolution {
    /// Makes a resolution.
    pub fn new(width: u32, height: u32) -> Self {
        Self { width, height }
    }

    /// Pixels.
    pub fn area(self) -> u64 {
        let or = |n: u32, default| u64::from(if n == 0 { default } else { n });
        or(self.width, 640) * or(self.height, 360)
    }
}

/// How many pixels are one token; 0 counts as the default, 1024.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Dynamic {
    /// Pixels of a token. 0 counts as 1024. Default 0.
    factor: u64,
}

impl Dynamic {
    /// The tokens of so many pixels, at least 1.
    pub fn tokens(self, area: u64) -> u64 {
        let factor = if self.factor == 0 { 1024 } else { self.factor };
        (area / factor).max(1)
    }
}

#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct FixedImage {
    /// Tokens of every image; 0 counts as 1. Default 0.
    pub static_token: u64,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Video {
    /// The size of videos where no header tells it.
    pub default_resolution: Resolution,
    /// Seconds that a video lasts where no header tells it. 0 counts as 10. Default 10.
    #[schemars(range(min = 0))]
    pub default_duration: f64,
    /// What a frame is taken for.
    pub tokens_per_frame: TokensPerFrame,
    /// Which frames count.
    pub frames: Frames,
    /// At most so many tokens a video. Default 0: no limit.
    pub max_video_tokens: u64,
}

impl Default for Video {
    fn default() -> Self {
        Self {
            default_resolution: Resolution::default(),
            default_duration: 10.0,
            tokens_per_frame: TokensPerFrame::default(),
            frames: Frames::default(),
            max_video_tokens: 0,
        }
    }
}

impl Video {
    /// What is out of range.
    pub fn mistakes(&self) -> Vec<NodeError> {
        [
            ("defaultDuration", self.default_duration),
            ("frames.sampled.sampleFPS", self.frames.sampled.sample_fps),
            ("frames.strided.defaultSourceFPS", self.frames.strided.default_source_fps),
        ]
        .into_iter()
        .filter(|(_, value)| *value < 0.0)
        .map(|(key, value)| NodeError {
            place: None,
            path: format!("estimate.video.{key}"),
            message: format!("expected 0 or more, found {value}"),
        })
        .collect()
    }
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct TokensPerFrame {
    /// `dynamic`: by the size of the video; `static`: always the same. Default `dynamic`.
    pub mode: Mode,
    /// Counts in the mode `dynamic`.
    pub dynamic: Dynamic,
    /// Counts in the mode `static`.
    #[serde(rename = "static")]
    pub fixed: FixedFrame,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct FixedFrame {
    /// Tokens of every frame; 0 counts as 1. Default 0.
    pub num_tokens_per_frame: u64,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Frames {
    /// `sampled`: so many frames a second; `strided`: every nth frame of the source. Default `sampled`.
    pub mode: FramesMode,
    /// At least so many frames. Default 0: no limit.
    pub min_frames: u64,
    /// At most so many frames. Default 0: no limit.
    pub max_frames: u64,
    /// Counts in the mode `sampled`.
    pub sampled: Sampled,
    /// Counts in the mode `strided`.
    pub strided: Strided,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum FramesMode {
    #[default]
    Sampled,
    Strided,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Sampled {
    /// Frames a second. 0 counts as 2. Default 2.
    #[serde(rename = "sampleFPS")]
    #[schemars(range(min = 0))]
    pub sample_fps: f64,
    /// So many frames make one; below 2 each counts by itself. Default 0.
    pub temporal_patch_size: u64,
}

impl Default for Sampled {
    fn default() -> Self {
        Self { sample_fps: 2.0, temporal_patch_size: 0 }
    }
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Strided {
    /// Frames a second of the source where no header tells it. 0 counts as 24. Default 24.
    #[serde(rename = "defaultSourceFPS")]
    #[schemars(range(min = 0))]
    pub default_source_fps: f64,
    /// One frame of so many counts. 0 counts as 1: every frame. Default 1.
    pub frame_stride: u64,
}

impl Default for Strided {
    fn default() -> Self {
        Self { default_source_fps: 24.0, frame_stride: 1 }
    }
}

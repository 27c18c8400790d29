//! How many tokens an image, a video or a sound is taken for.

use epp_plugin_api::Headers;

use super::estimate::{Estimate, FramesMode, Image, Mode, Resolution, Video};
use super::image_size;

/// What the client says of its videos.
const DURATION_HEADER: &str = "x-llm-d-video-duration-seconds";
const FPS_HEADER: &str = "x-llm-d-video-fps";
const RESOLUTION_HEADER: &str = "x-llm-d-video-resolution";

impl Estimate {
    /// The tokens of an image of this URL, or of these base64 data, at least 1.
    pub fn image_tokens(&self, content: &[u8]) -> u64 {
        let Image { mode, default_resolution, dynamic, fixed } = &self.image;
        match mode {
            Mode::Static => fixed.static_token.max(1),
            Mode::Dynamic => dynamic.tokens(image_size::of_data_url(content).unwrap_or(*default_resolution).area()),
        }
    }

    /// The tokens of a video of this request, at least 1.
    pub fn video_tokens(&self, headers: &Headers) -> u64 {
        let video = &self.video;
        let tokens = frames(video, headers).saturating_mul(tokens_per_frame(video, headers));
        let most = if video.max_video_tokens == 0 { u64::MAX } else { video.max_video_tokens };
        tokens.min(most).max(1)
    }
}

/// The tokens of a sound whose data and format have so many bytes together, at least 1.
pub fn audio_tokens(bytes: usize) -> u64 {
    (bytes.div_ceil(4) as u64).max(1)
}

fn frames(video: &Video, headers: &Headers) -> u64 {
    let frames = &video.frames;
    let seconds = positive(headers, DURATION_HEADER).unwrap_or(or_default(video.default_duration, 10.0));
    let clamped = |n: u64| {
        let n = n.max(frames.min_frames);
        if frames.max_frames == 0 { n } else { n.min(frames.max_frames) }
    };
    match frames.mode {
        FramesMode::Strided => {
            let fps = positive(headers, FPS_HEADER).unwrap_or(or_default(frames.strided.default_source_fps, 24.0));
            clamped((seconds * fps) as u64 / frames.strided.frame_stride.max(1))
        }
        FramesMode::Sampled => {
            let sampled = clamped((seconds * or_default(frames.sampled.sample_fps, 2.0)) as u64);
            sampled / frames.sampled.temporal_patch_size.max(1)
        }
    }
}

fn tokens_per_frame(video: &Video, headers: &Headers) -> u64 {
    let rule = &video.tokens_per_frame;
    match rule.mode {
        Mode::Static => rule.fixed.num_tokens_per_frame.max(1),
        Mode::Dynamic => rule.dynamic.tokens(resolution(headers).unwrap_or(video.default_resolution).area()),
    }
}

fn or_default(value: f64, default: f64) -> f64 {
    if value > 0.0 { value } else { default }
}

fn positive(headers: &Headers, name: &str) -> Option<f64> {
    headers.find(name)?.trim().parse().ok().filter(|v: &f64| v.is_finite() && *v > 0.0)
}

fn resolution(headers: &Headers) -> Option<Resolution> {
    let (width, height) = headers.find(RESOLUTION_HEADER)?.trim().split_once(['x', 'X'])?;
    let pixels = |n: &str| n.trim().parse().ok().filter(|&n: &u32| n > 0);
    Some(Resolution::new(pixels(width)?, pixels(height)?))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::testing::node;

    use super::*;

    fn estimate(parameters: serde_json::Value) -> Estimate {
        node(parameters).decode().unwrap()
    }

    #[test]
    fn an_image_takes_the_tokens_of_its_size() {
        for (image, count) in [
            (json!({}), 225),
            (json!({"mode": "static", "static": {"staticToken": 7}}), 7),
            (json!({"mode": "static"}), 1),
            (json!({"dynamic": {"factor": 2048}}), 112),
            (json!({"defaultResolution": {"width": 1024, "height": 1024}}), 1024),
            (json!({"defaultResolution": {"width": 8, "height": 8}}), 1),
        ] {
            assert_eq!(estimate(json!({"image": image})).image_tokens(b"https://host/a.png"), count, "{image}");
        }
    }

    fn check(video: serde_json::Value, headers: &[(&str, &str)], count: u64) {
        let mut sent = Headers::default();
        headers.iter().for_each(|(key, value)| sent.set(*key, value.to_string()));
        assert_eq!(estimate(json!({"video": video})).video_tokens(&sent), count, "{video} {headers:?}");
    }

    #[test]
    fn a_video_takes_the_tokens_of_its_frames() {
        let hundred = json!({"mode": "static", "static": {"numTokensPerFrame": 100}});
        check(json!({}), &[], 4500);
        check(json!({"tokensPerFrame": hundred}), &[], 2000);
        check(json!({"tokensPerFrame": {"dynamic": {"factor": 2048}}}), &[], 2240);
        let frames = json!({"mode": "strided", "maxFrames": 16, "strided": {"frameStride": 4}});
        check(json!({"tokensPerFrame": hundred, "frames": frames}), &[], 1600);
        let frames = json!({"mode": "strided", "minFrames": 8, "strided": {"frameStride": 4}});
        check(json!({"tokensPerFrame": hundred, "defaultDuration": 1, "frames": frames}), &[], 800);
        check(json!({"maxVideoTokens": 500}), &[], 500);
        check(json!({"defaultResolution": {"width": 640, "height": 480}}), &[], 6000);
        check(json!({"frames": {"sampled": {"temporalPatchSize": 2}}}), &[], 2250);
        check(json!({"frames": {"sampled": {"temporalPatchSize": 100}}}), &[], 1);
    }

    #[test]
    fn headers_tell_duration_rate_and_size() {
        let hundred = json!({"mode": "static", "static": {"numTokensPerFrame": 100}});
        let (seconds, size) = (DURATION_HEADER, RESOLUTION_HEADER);
        check(json!({"tokensPerFrame": hundred}), &[(seconds, "2.5")], 500);
        check(json!({}), &[(seconds, "1"), (size, "1920x1080")], 4050);
        check(json!({}), &[(seconds, "1"), (size, "1920X1080")], 4050);
        let frames = json!({"mode": "strided", "strided": {"frameStride": 10}});
        check(json!({"tokensPerFrame": hundred, "frames": frames}), &[(FPS_HEADER, "30")], 3000);
        // 375 frames are 37 whole steps.
        let all = [(FPS_HEADER, "30"), (seconds, "12.5"), (size, "1920x1080")];
        check(json!({"tokensPerFrame": hundred, "frames": frames}), &all, 3700);
    }

    #[test]
    fn a_header_that_is_no_positive_number_is_ignored() {
        for value in ["-1", "0", "abc", "", "NaN", "inf", "1e400"] {
            check(json!({}), &[(DURATION_HEADER, value), (FPS_HEADER, value), (RESOLUTION_HEADER, value)], 4500);
        }
        for size in ["0x5", "5x", "x", "1920", "-1x5", "5x99999999999"] {
            check(json!({}), &[(RESOLUTION_HEADER, size)], 4500);
        }
    }

    #[test]
    fn a_sound_takes_a_quarter_of_its_length() {
        assert_eq!([0, 1, 4, 1024, 1025].map(audio_tokens), [1, 1, 1, 256, 257]);
    }
}

//! Multimodal features that come with token ids: by modality hashes and the places of their tokens.

use crate::json::{Fault, Field, Scanner};

/// Hash, offset and length in tokens.
pub type Feature = (String, usize, usize);

/// So many modalities are looked at; there are images, videos and sound.
const MAX_MODALITIES: usize = 16;
/// So many features of a modality are kept.
const MAX_FEATURES: usize = 1 << 16;

/// Lists by modality, the modality as it stands in the body.
type ByModality<'a, T> = Vec<(&'a [u8], Vec<T>)>;

/// Reads the features, sorted by offset. The hashes and the places of a modality are paired by index; what is left over
/// counts for nothing. `None`: of another shape.
pub fn read(s: &mut Scanner<'_>) -> Result<Option<Vec<Feature>>, Fault> {
    let mut hashes: ByModality<'_, String> = Vec::new();
    let mut places: ByModality<'_, (usize, usize)> = Vec::new();
    let mut right = true;
    let field = s.object(|s, key| {
        if key.folds_to("mm_hashes") {
            right &= by_modality(s, &mut hashes, hash)?;
        } else if key.folds_to("mm_placeholders") {
            right &= by_modality(s, &mut places, place)?;
        } else {
            s.skip()?;
        }
        Ok(())
    })?;
    if !right || field == Field::Wrong {
        return Ok(None);
    }
    let mut features: Vec<Feature> = Vec::new();
    for (modality, hashes) in hashes {
        let places = places.iter().find(|(of, _)| *of == modality).map_or(&[][..], |(_, places)| places);
        features.extend(hashes.into_iter().zip(places).map(|(hash, &(offset, length))| (hash, offset, length)));
    }
    features.sort_by_key(|&(_, offset, _)| offset);
    Ok(Some(features))
}

/// Reads an object of lists. Says whether it is one, and every element what it should be.
fn by_modality<'a, T>(
    s: &mut Scanner<'a>,
    lists: &mut ByModality<'a, T>,
    mut element: impl FnMut(&mut Scanner<'a>) -> Result<Option<T>, Fault>,
) -> Result<bool, Fault> {
    let mut right = true;
    lists.clear();
    let field = s.object(|s, key| {
        let mut list = Vec::new();
        let field = s.array(|s, _| {
            match element(s)? {
                Some(value) if list.len() < MAX_FEATURES => list.push(value),
                Some(_) => {}
                None => right = false,
            }
            Ok(())
        })?;
        right &= field != Field::Wrong;
        if lists.len() < MAX_MODALITIES {
            lists.push((key.raw(), list));
        }
        Ok(())
    })?;
    Ok(right && field != Field::Wrong)
}

fn hash(s: &mut Scanner<'_>) -> Result<Option<String>, Fault> {
    Ok(match s.text()? {
        Field::Is(text) => Some(text.read(s.body())),
        Field::Null => Some(String::new()),
        Field::Wrong => None,
    })
}

fn place(s: &mut Scanner<'_>) -> Result<Option<(usize, usize)>, Fault> {
    let (mut offset, mut length, mut right) = (0, 0, true);
    let field = s.object(|s, key| {
        let place = if key.folds_to("offset") {
            &mut offset
        } else if key.folds_to("length") {
            &mut length
        } else {
            return s.skip().map(drop);
        };
        match s.whole()? {
            Field::Is(n) => *place = usize::try_from(n).unwrap_or(usize::MAX),
            Field::Null => {}
            Field::Wrong => right = false,
        }
        Ok(())
    })?;
    Ok((right && field != Field::Wrong).then_some((offset, length)))
}

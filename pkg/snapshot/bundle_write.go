package snapshot

import (
	"archive/tar"
	"compress/gzip"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"
)

// WriteBundle writes a Snapshot as a bundle: a tar.gz of plain files, which
// docs/bundle.md describes. The same Snapshot gives the same bytes. Objects
// are stripped on their way in (see Strip). The caller's Snapshot is not
// changed.
func WriteBundle(w io.Writer, s *Snapshot) error {
	files, err := layOut(s)
	if err != nil {
		return err
	}
	gz := gzip.NewWriter(w)
	tw := tar.NewWriter(gz)
	at := tarTime(s.TakenAt)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		h := &tar.Header{Typeflag: tar.TypeReg, Name: name, Size: int64(len(files[name])), Mode: 0o644, ModTime: at}
		if err := tw.WriteHeader(h); err != nil {
			return fmt.Errorf("write %s into the bundle: %w", name, err)
		}
		if _, err := tw.Write(files[name]); err != nil {
			return fmt.Errorf("write %s into the bundle: %w", name, err)
		}
	}
	if err := tw.Close(); err != nil {
		return fmt.Errorf("close the bundle's tar: %w", err)
	}
	if err := gz.Close(); err != nil {
		return fmt.Errorf("close the bundle's gzip: %w", err)
	}
	return nil
}

// tarTime is a time that every tar can hold: whole seconds, not before 1970.
func tarTime(t time.Time) time.Time {
	if t.Unix() < 0 {
		return time.Unix(0, 0).UTC()
	}
	return t.UTC().Truncate(time.Second)
}

package main

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// unpackBundle replaces a bundle's file by a folder of its files.
func unpackBundle(file, dir string) error {
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("replacing %s: %w", dir, err)
	}
	f, err := os.Open(file)
	if err != nil {
		return fmt.Errorf("unpacking: %w", err)
	}
	defer f.Close()
	zipped, err := gzip.NewReader(f)
	if err != nil {
		return fmt.Errorf("unpacking %s: %w", file, err)
	}
	for archive := tar.NewReader(zipped); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return os.Remove(file)
		}
		if err != nil {
			return fmt.Errorf("unpacking %s: %w", file, err)
		}
		if header.Typeflag == tar.TypeReg {
			if err := unpackFile(archive, dir, header.Name); err != nil {
				return fmt.Errorf("unpacking %s: %w", file, err)
			}
		}
	}
}

func unpackFile(from io.Reader, dir, name string) error {
	if !filepath.IsLocal(name) {
		return fmt.Errorf("the entry %q leads out of the bundle", name)
	}
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	text, err := io.ReadAll(from)
	if err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o644)
}

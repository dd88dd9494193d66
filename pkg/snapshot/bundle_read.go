package snapshot

import (
	"archive/tar"
	"bufio"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
)

// limits bound what is read; tests make them small.
type limits struct {
	file, total int64
	files       int
}

var bundleLimits = limits{file: MaxBundleFile, total: MaxBundleTotal, files: MaxBundleFiles}

// ReadBundle reads what WriteBundle wrote, or what a person packed by hand as
// docs/bundle.md says. Objects are stripped again. Files that do not belong
// into a bundle are left alone and named among the Inputs; anything that could
// reach outside of the bundle (absolute paths, "..", links, devices), a double
// entry, a cut archive or one beyond the limits is an error, and so is a file
// that cannot be parsed: the error names the file, the line and the column.
func ReadBundle(r io.Reader) (*Snapshot, error) {
	files, err := untar(r, bundleLimits)
	if err != nil {
		return nil, err
	}
	return parseBundle(files)
}

// ReadBundleFS reads an unpacked bundle, in the same way.
func ReadBundleFS(fsys fs.FS) (*Snapshot, error) {
	files, err := readTree(fsys, bundleLimits)
	if err != nil {
		return nil, err
	}
	return parseBundle(files)
}

// ReadBundleFile reads a bundle from a file, or from the folder into which it
// was unpacked.
func ReadBundleFile(name string) (*Snapshot, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("open bundle: %w", err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("open bundle: %w", err)
	}
	var s *Snapshot
	switch {
	case st.IsDir():
		s, err = ReadBundleFS(os.DirFS(name))
	case !st.Mode().IsRegular():
		err = errors.New("neither a file nor a folder")
	default:
		s, err = ReadBundle(f)
	}
	if err != nil {
		return nil, fmt.Errorf("read bundle %s: %w", name, err)
	}
	return s, nil
}

const notBundle = "a bundle is the .tar.gz that `vipwalk capture` writes, or the folder it unpacks to"

func untar(r io.Reader, max limits) (map[string]bundleFile, error) {
	br := bufio.NewReader(r)
	if magic, err := br.Peek(2); err != nil || magic[0] != 0x1f || magic[1] != 0x8b {
		return nil, fmt.Errorf("not a gzip file: %s", notBundle)
	}
	gz, err := gzip.NewReader(br)
	if err != nil {
		return nil, fmt.Errorf("not a gzip file (%w): %s", err, notBundle)
	}
	defer gz.Close()
	// The budget counts what is unpacked, headers and padding too.
	budget := &io.LimitedReader{R: gz, N: max.total + 1}
	files, err := untarAll(tar.NewReader(budget), max)
	if err == nil {
		// The rest holds the checksum of the whole.
		_, err = io.Copy(io.Discard, budget)
	}
	if budget.N <= 0 {
		return nil, fmt.Errorf("the bundle unpacks to more than %d bytes", max.total)
	}
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return nil, fmt.Errorf("the bundle is cut short: copy it again (%w)", err)
	case errors.Is(err, gzip.ErrChecksum), errors.Is(err, gzip.ErrHeader), errors.Is(err, tar.ErrHeader):
		return nil, fmt.Errorf("the bundle is damaged, or is no tar: %w", err)
	}
	return files, err
}

func untarAll(tr *tar.Reader, max limits) (map[string]bundleFile, error) {
	files := map[string]bundleFile{}
	for entries := 0; ; entries++ {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return files, nil
		}
		if err != nil {
			return nil, err
		}
		if entries >= max.files {
			return nil, fmt.Errorf("the bundle has more than %d entries", max.files)
		}
		switch h.Typeflag {
		case tar.TypeXGlobalHeader:
			continue
		case tar.TypeDir:
			if _, err := cleanName(h.Name); err != nil {
				return nil, err
			}
			continue
		case tar.TypeReg:
		default:
			return nil, fmt.Errorf("entry %q is neither a file nor a folder (tar type %q)", h.Name, h.Typeflag)
		}
		name, err := cleanName(h.Name)
		if err != nil {
			return nil, err
		}
		if _, twice := files[name]; twice {
			return nil, fmt.Errorf("entry %q is there twice", name)
		}
		data, err := readLimited(tr, name, max.file)
		if err != nil {
			return nil, err
		}
		files[name] = bundleFile{data: data, mtime: h.ModTime}
	}
}

// cleanName admits a plain relative path, with or without "./" before it.
func cleanName(name string) (string, error) {
	clean := strings.TrimSuffix(strings.TrimPrefix(name, "./"), "/")
	if clean == "" || clean == "." {
		return ".", nil
	}
	if !fs.ValidPath(clean) || strings.ContainsAny(clean, "\\\x00") {
		return "", fmt.Errorf("entry %q has a path that leads out of the bundle, or is no plain path", name)
	}
	return clean, nil
}

func readLimited(r io.Reader, name string, max int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, max+1))
	if err != nil {
		return nil, fmt.Errorf("read %q: %w", name, err)
	}
	if int64(len(data)) > max {
		return nil, fmt.Errorf("%q has more than %d bytes", name, max)
	}
	return data, nil
}

func readTree(fsys fs.FS, max limits) (map[string]bundleFile, error) {
	files := map[string]bundleFile{}
	var total int64
	err := fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return fmt.Errorf("read %q: %w", name, err)
		}
		if d.IsDir() {
			return nil
		}
		if !d.Type().IsRegular() {
			return fmt.Errorf("%q is neither a file nor a folder", name)
		}
		if len(files) >= max.files {
			return fmt.Errorf("the bundle has more than %d files", max.files)
		}
		f, err := readFile(fsys, name, max.file)
		if err != nil {
			return err
		}
		if total += int64(len(f.data)); total > max.total {
			return fmt.Errorf("the bundle holds more than %d bytes", max.total)
		}
		files[name] = f
		return nil
	})
	return files, err
}

func readFile(fsys fs.FS, name string, max int64) (bundleFile, error) {
	f, err := fsys.Open(name)
	if err != nil {
		return bundleFile{}, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return bundleFile{}, err
	}
	data, err := readLimited(f, name, max)
	return bundleFile{data: data, mtime: st.ModTime()}, err
}

// rebase takes the one folder away that stands before everything, as
// `tar -czf b.tar.gz folder` puts it there.
func rebase(files map[string]bundleFile) map[string]bundleFile {
	top := ""
	for name := range files {
		if hidden(name) {
			continue
		}
		first, _, deeper := strings.Cut(name, "/")
		if !deeper || first == objectsDir || first == nodesDir || (top != "" && top != first) {
			return files
		}
		top = first
	}
	out := make(map[string]bundleFile, len(files))
	for name, f := range files {
		out[strings.TrimPrefix(name, top+"/")] = f
	}
	return out
}

// hidden says whether a file is an operating system's or editor's own.
func hidden(name string) bool { return strings.HasPrefix(path.Base(name), ".") }

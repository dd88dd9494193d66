package cluster

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"golang.org/x/sys/unix"
)

// modulePath is this package's own module, whose go.mod fixes the release.
const modulePath = "github.com/vipwalk/vipwalk/testdata/cluster"

// mainPackages are the programs of a cluster and the packages they are built
// from; the etcd server's package has the base name "server".
var mainPackages = map[string]string{
	"kube-apiserver":          "k8s.io/kubernetes/cmd/kube-apiserver",
	"kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
	"kube-proxy":              "k8s.io/kubernetes/cmd/kube-proxy",
	"server":                  "go.etcd.io/etcd/server/v3",
}

// Binaries are the control plane's and kube-proxy's programs.
type Binaries struct {
	Dir     string
	Version string // of Kubernetes: v1.37.2
}

func (b Binaries) path(program string) string { return filepath.Join(b.Dir, program) }

// FindBinaries returns the programs, from the cache
// $VIPWALK_TEST_CACHE/control-plane or, where that is not set, the user's cache
// directory. Where they are not there they are built, which takes about 16
// minutes of processor time; the cache is keyed by release and go.sum. The
// working directory must be in this module.
func FindBinaries(ctx context.Context) (Binaries, error) {
	module, err := moduleDir()
	if err != nil {
		return Binaries{}, err
	}
	version, sum, err := release(module)
	if err != nil {
		return Binaries{}, err
	}
	cache, err := cacheDir()
	if err != nil {
		return Binaries{}, err
	}
	b := Binaries{Dir: filepath.Join(cache, "control-plane", version+"-"+sum), Version: version}
	if err := os.MkdirAll(filepath.Dir(b.Dir), 0o755); err != nil {
		return Binaries{}, fmt.Errorf("making the cache for the control plane: %w", err)
	}
	unlock, err := lockFile(b.Dir + ".lock")
	if err != nil {
		return Binaries{}, err
	}
	defer unlock()
	if b.complete() {
		return b, nil
	}
	return b, b.build(ctx, module)
}

func (b Binaries) complete() bool {
	for program := range mainPackages {
		if _, err := os.Stat(b.path(program)); err != nil {
			return false
		}
	}
	return true
}

// build makes the programs beside their place and moves them there whole, so
// that an interrupted build leaves nothing that looks finished.
func (b Binaries) build(ctx context.Context, module string) error {
	part := b.Dir + ".part"
	if err := os.MkdirAll(part, 0o755); err != nil {
		return fmt.Errorf("making %s: %w", part, err)
	}
	fmt.Fprintf(os.Stderr, "building the %s control plane into %s, once: about 16 minutes of processor time\n", b.Version, b.Dir)
	args := []string{"build", "-trimpath", "-o", part + "/", "-ldflags", b.linkerFlags()}
	for _, p := range mainPackages {
		args = append(args, p)
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = module
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("building the control plane with go %s: %w", strings.Join(args, " "), err)
	}
	if err := os.RemoveAll(b.Dir); err != nil {
		return fmt.Errorf("replacing an incomplete control plane: %w", err)
	}
	return os.Rename(part, b.Dir)
}

// linkerFlags make /version answer with the release; without them the API
// server says v0.0.0-master.
func (b Binaries) linkerFlags() string {
	const pkg = "k8s.io/component-base/version."
	major, minor := "1", strings.Split(b.Version, ".")[1]
	return strings.Join([]string{
		"-s -w",
		"-X " + pkg + "gitVersion=" + b.Version,
		"-X " + pkg + "gitMajor=" + major,
		"-X " + pkg + "gitMinor=" + minor,
		"-X " + pkg + "gitTreeState=clean",
		"-X " + pkg + "gitCommit=vipwalk-test-cluster",
	}, " ")
}

// moduleDir is the directory of this module: the working directory or one
// above it.
func moduleDir() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("finding the working directory: %w", err)
	}
	for d := dir; ; d = filepath.Dir(d) {
		text, err := os.ReadFile(filepath.Join(d, "go.mod"))
		if err == nil && strings.HasPrefix(string(text), "module "+modulePath+"\n") {
			return d, nil
		}
		if d == filepath.Dir(d) {
			return "", fmt.Errorf("no go.mod of %s in or above %s: run it from testdata/cluster", modulePath, dir)
		}
	}
}

var kubernetesVersion = regexp.MustCompile(`(?m)^\s+k8s\.io/kubernetes (v1\.[0-9.]+)`)

// release reads the Kubernetes version that the module requires, and a short
// hash of its go.sum.
func release(module string) (version, sum string, err error) {
	mod, err := os.ReadFile(filepath.Join(module, "go.mod"))
	if err != nil {
		return "", "", fmt.Errorf("reading the release of the control plane: %w", err)
	}
	m := kubernetesVersion.FindSubmatch(mod)
	if m == nil {
		return "", "", fmt.Errorf("%s/go.mod requires no k8s.io/kubernetes", module)
	}
	sums, err := os.ReadFile(filepath.Join(module, "go.sum"))
	if err != nil {
		return "", "", fmt.Errorf("reading the release of the control plane: %w", err)
	}
	h := sha256.Sum256(sums)
	return string(m[1]), hex.EncodeToString(h[:6]), nil
}

func cacheDir() (string, error) {
	if dir := os.Getenv("VIPWALK_TEST_CACHE"); dir != "" {
		return dir, nil
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("finding a cache directory (set VIPWALK_TEST_CACHE): %w", err)
	}
	return filepath.Join(dir, "vipwalk"), nil
}

// lockFile waits for an exclusive lock on a file and returns what releases it.
func lockFile(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("opening a lock: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		f.Close()
		return nil, fmt.Errorf("locking %s: %w", path, err)
	}
	return func() { f.Close() }, nil
}

package snapshot

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"strings"
	"testing"
)

func TestHostileArchives(t *testing.T) {
	good := written(t, full())
	reg := func(name string) tar.Header { return tar.Header{Typeflag: tar.TypeReg, Name: name} }
	gz := func(b []byte) []byte {
		var out bytes.Buffer
		w := gzip.NewWriter(&out)
		_, _ = w.Write(b)
		_ = w.Close()
		return out.Bytes()
	}
	for name, c := range map[string]struct {
		data []byte
		want string
	}{
		"empty":          {nil, "not a gzip file"},
		"text":           {[]byte("*nat\nCOMMIT\n"), "not a gzip file"},
		"gzip alone":     {gz([]byte("hello")), "cut short"},
		"gzip of noise":  {gz(bytes.Repeat([]byte("noise"), 1000)), "damaged, or is no tar"},
		"empty gzip":     {gz(nil), "no manifest.json"},
		"cut in half":    {good[:len(good)/2], "cut short"},
		"cut at the end": {good[:len(good)-4], "cut short"},
		"bit flipped":    {append(append([]byte{}, good[:len(good)-6]...), 0, 0, 0, 0, 0, 0), "damaged"},
		"up":             {packHeaders(t, []tar.Header{reg("../manifest.json")}, nil), "leads out"},
		"up inside":      {packHeaders(t, []tar.Header{reg("objects/../../x.json")}, nil), "leads out"},
		"absolute":       {packHeaders(t, []tar.Header{reg("/etc/passwd")}, nil), "leads out"},
		"backslash":      {packHeaders(t, []tar.Header{reg(`objects\..\x`)}, nil), "leads out"},
		"folder up":      {packHeaders(t, []tar.Header{{Typeflag: tar.TypeDir, Name: "../x/"}}, nil), "leads out"},
		"symlink":        {packHeaders(t, []tar.Header{{Typeflag: tar.TypeSymlink, Name: "objects/pods.json", Linkname: "/etc/passwd"}}, nil), "neither a file"},
		"hard link":      {packHeaders(t, []tar.Header{{Typeflag: tar.TypeLink, Name: "objects/pods.json", Linkname: "x"}}, nil), "neither a file"},
		"device":         {packHeaders(t, []tar.Header{{Typeflag: tar.TypeChar, Name: "objects/pods.json"}}, nil), "neither a file"},
		"fifo":           {packHeaders(t, []tar.Header{{Typeflag: tar.TypeFifo, Name: "objects/pods.json"}}, nil), "neither a file"},
		"twice":          {packHeaders(t, []tar.Header{reg("objects/pods.json"), reg("./objects/pods.json")}, nil), "there twice"},
		"nothing of it":  {packHeaders(t, []tar.Header{reg("a.txt"), reg("b/c.txt")}, nil), "no manifest.json"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ReadBundle(bytes.NewReader(c.data))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
		})
	}
}

func TestBundleLimits(t *testing.T) {
	zeros := map[string]string{"objects/pods.json": strings.Repeat("0", 4096), "nodes/a/sysctl.txt": strings.Repeat("0", 4096)}
	data := pack(t, zeros)
	for name, c := range map[string]struct {
		max  limits
		want string
	}{
		"one file":  {limits{file: 4095, total: 1 << 20, files: 10}, "more than 4095 bytes"},
		"all files": {limits{file: 4096, total: 6000, files: 10}, "more than 6000 bytes"},
		"entries":   {limits{file: 4096, total: 1 << 20, files: 1}, "more than 1"},
	} {
		if _, err := untar(bytes.NewReader(data), c.max); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s, packed: error %v, want %q", name, err, c.want)
		}
		if _, err := readTree(mapFS(zeros, taken), c.max); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s, unpacked: error %v, want %q", name, err, c.want)
		}
	}
	if _, err := untar(bytes.NewReader(data), limits{file: 4096, total: 1 << 20, files: 2}); err != nil {
		t.Errorf("just within the limits: %v", err)
	}
}

func TestBundleErrorsNameThePlace(t *testing.T) {
	for name, c := range map[string]struct{ file, text, want string }{
		"garbage":       {"objects/pods.json", "\x00\x01", "objects/pods.json:1:1: "},
		"empty":         {"objects/pods.json", " \n", "objects/pods.json: the file is empty"},
		"cut":           {"objects/pods.json", `{"items":[`, "objects/pods.json:1:10: "},
		"third line":    {"objects/pods.json", "{\n\"items\":[\n{\"kind\" 3}]}", "objects/pods.json:3:9: "},
		"wrong type":    {"objects/pods.json", "{\"items\":[\n {\"apiVersion\":\"v1\",\"kind\":\"Pod\",\n  \"spec\":3}]}", "objects/pods.json:3:10: "},
		"second item":   {"objects/pods.json", "{\"items\":[\n{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{\"name\":\"a\"}},\n  {\"apiVersion\":\"v1\",\"kind\":\"Pod\"}]}", "objects/pods.json:3:3: a Pod without metadata.name"},
		"a bad time":    {"objects/pods.json", "[]", "objects/pods.json:1:1: "},
		"a list's item": {"objects/pods.json", "{\"kind\":\"List\",\"items\":[\n{}]}", "objects/pods.json:2:1: an object without apiVersion and kind"},
		"not a list":    {"objects/pods.json", "{}", "objects/pods.json:1:1: an object without apiVersion and kind"},
		"yaml":          {"objects/pods.yaml", "a: b\n---\nkind: [", "objects/pods.yaml: "},
		"manifest":      {"manifest.json", "{\n]", "manifest.json:2:1: "},
		"other kind":    {"manifest.json", "{}", `manifest.json: apiVersion "" and kind ""`},
		"too new":       {"manifest.json", `{"apiVersion":"vipwalk.dev/v1","kind":"Bundle","version":99}`, "use a newer vipwalk"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ReadBundleFS(mapFS(map[string]string{c.file: c.text}, taken))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
		})
	}
}

// FuzzBundleFiles feeds the parser what an archive may hold: it never panics,
// and what it accepts it can write and read again to the same bytes.
func FuzzBundleFiles(f *testing.F) {
	for _, s := range []*Snapshot{full(), {}} {
		files := unpack(f, written(f, s))
		f.Add(files["manifest.json"], "objects/services.json", files["objects/services.json"], "nodes/w1/iptables-save.txt", "*nat")
	}
	f.Add("", "objects/x/pods.yaml", "kind: Pod\napiVersion: v1\nmetadata: {name: a}\n---\n", "nodes/../x", "")
	f.Add("", "objects/configmaps.json", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"kube-proxy","namespace":"kube-system"},"data":{"config":"mode: x"}}`, "a", "b")
	f.Fuzz(func(t *testing.T, manifest, name1, text1, name2, text2 string) {
		files := map[string]bundleFile{name1: {data: []byte(text1)}, name2: {data: []byte(text2), mtime: taken}}
		if manifest != "" {
			files["manifest.json"] = bundleFile{data: []byte(manifest)}
		}
		s, err := parseBundle(files)
		if err != nil {
			return
		}
		var first, second bytes.Buffer
		if err := WriteBundle(&first, s); err != nil {
			t.Skip(err) // a time beyond the year 9999
		}
		back, err := ReadBundle(bytes.NewReader(first.Bytes()))
		if err != nil {
			t.Fatalf("cannot read what was written: %v", err)
		}
		if err := WriteBundle(&second, back); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(first.Bytes(), second.Bytes()) {
			t.Errorf("not the same bytes:\n%s\n%s", unpack(t, first.Bytes()), unpack(t, second.Bytes()))
		}
	})
}

func FuzzReadBundle(f *testing.F) {
	f.Add(written(f, full()))
	f.Add([]byte{0x1f, 0x8b})
	f.Fuzz(func(t *testing.T, data []byte) {
		_, _ = untar(bytes.NewReader(data), limits{file: 1 << 16, total: 1 << 20, files: 100})
	})
}

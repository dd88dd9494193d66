package snapshot

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

var taken = time.Date(2026, 11, 3, 9, 30, 15, 123456789, time.UTC)

// full is a Snapshot with something of everything that a bundle must carry.
func full() *Snapshot {
	ready, port, name := true, int32(8080), "http"
	s := &Snapshot{
		TakenAt: taken,
		Inputs:  []Input{{Kind: "api", Ref: "https://10.0.0.1:6443", At: taken}, {Kind: "node-state", Ref: "a.txt", Node: "w1", Error: "no <such> file"}},
		Reads: Reads{
			{Resource: Services, Namespace: "shop", Status: Done},
			{Resource: EndpointSlices, Namespace: "shop", Status: Done},
			{Resource: Pods, Namespace: "shop", Status: Failed, Why: "forbidden", Supply: "kubectl create role ..."},
			{Resource: Events, Namespace: "shop", Only: "involvedObject.kind=Pod", Status: Done},
			{Resource: NetworkPolicies, Status: Done},
			{Resource: ConfigMaps, Namespace: ProxyNamespace, Name: "kube-proxy", Status: Done},
		},
		Nodes: []*NodeState{
			{Name: "w2", Via: "exec", Texts: []Text{
				{Kind: IptablesSave, Ref: "iptables-save -c", Status: Done, Content: "*nat\nCOMMIT\n\xff\x00raw\r\n"},
				{Kind: IptablesSave, Ref: "b.txt", Status: Done, Content: "*filter\nCOMMIT\n"},
				{Kind: Sysctl, Status: Failed, Why: "permission denied", Supply: "sudo"},
				{Kind: Hostname, Status: Done, Content: ""},
			}},
			{Name: "w1", At: taken, Via: "local", Texts: []Text{{Kind: IPAddr, Status: Done, Content: "1: lo"}}},
			{Name: "", Via: "node-state", Texts: []Text{{Kind: IPRoute, Status: Done, Content: "default"}}},
			{Name: "../../etc", Via: "node-state", Texts: []Text{{Kind: IPRoute, Status: Done, Content: "hostile"}}},
		},
	}
	s.Objects = Objects{
		Services: []corev1.Service{{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "orders"},
			Spec: corev1.ServiceSpec{ClusterIP: "10.96.0.9", Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromString("http")}}}}},
		EndpointSlices: []discoveryv1.EndpointSlice{{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "orders-x"}, AddressType: "IPv4",
			Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.1.0.1"}, Conditions: discoveryv1.EndpointConditions{Ready: &ready}}},
			Ports:     []discoveryv1.EndpointPort{{Name: &name, Port: &port}}}},
		NetworkPolicies: []networkingv1.NetworkPolicy{{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "p"},
			Spec: networkingv1.NetworkPolicySpec{Ingress: []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{
				{PodSelector: &metav1.LabelSelector{}}, {NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "<&>"}}}}}, {}}}}},
		ConfigMaps: []corev1.ConfigMap{{ObjectMeta: metav1.ObjectMeta{Namespace: ProxyNamespace, Name: "kube-proxy"},
			Data: map[string]string{"config.conf": "mode: iptables\n"}}},
	}
	return s
}

func allRead() (out Reads) {
	for _, r := range Resources {
		out.Add(Read{Resource: r, Status: Done})
	}
	return out
}

func written(t testing.TB, s *Snapshot) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := WriteBundle(&b, s); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestBundleRoundTrip(t *testing.T) {
	for name, s := range map[string]*Snapshot{"full": full(), "empty": {}, "planted": {Objects: planted(), TakenAt: taken, Reads: allRead()}} {
		t.Run(name, func(t *testing.T) {
			first := written(t, s)
			if again := written(t, s); !bytes.Equal(first, again) {
				t.Fatal("the same Snapshot gives different bytes")
			}
			back, err := ReadBundle(bytes.NewReader(first))
			if err != nil {
				t.Fatal(err)
			}
			if second := written(t, back); !bytes.Equal(first, second) {
				t.Errorf("writing what was read gives other bytes:\n%s", cmp.Diff(unpack(t, first), unpack(t, second)))
			}
			want := s.Clone()
			want.Objects = Strip(&want.Objects)
			want.Nodes = sortedNodes(want.Nodes)
			if diff := cmp.Diff(want, back); diff != "" {
				t.Errorf("the Snapshot that was read differs (-want +got):\n%s", diff)
			}
			fromFS, err := ReadBundleFS(mapFS(unpack(t, first), taken))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(back, fromFS); diff != "" {
				t.Errorf("unpacked and packed differ:\n%s", diff)
			}
		})
	}
}

func TestBundleHoldsNoSecret(t *testing.T) {
	o := planted()
	allowed, err := os.ReadFile("testdata/strip-survivors.txt")
	if err != nil {
		t.Fatal(err)
	}
	files := unpack(t, written(t, &Snapshot{Objects: o}))
	for name, text := range files {
		for _, m := range strings.Split(text, marker+":")[1:] {
			p := m[:strings.IndexAny(m, `"\`)]
			if !strings.Contains(string(allowed), p+"\n") {
				t.Errorf("%s holds %s", name, p)
			}
		}
	}
	if len(files) < len(Resources) {
		t.Errorf("%d files in the bundle, want one for each of %d resources", len(files), len(Resources))
	}
}

func TestBundleStripsWhatItReads(t *testing.T) {
	o := planted()
	var items []json.RawMessage
	for _, sl := range slots {
		raw, err := sl.encode(&o)
		if err != nil {
			t.Fatal(err)
		}
		items = append(items, raw...)
	}
	secret := json.RawMessage(`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"a"},"data":{"a":"UzNDUkVU"}}`)
	data, err := indented(list{APIVersion: "v1", Kind: "List", Items: append(items, secret)})
	if err != nil {
		t.Fatal(err)
	}
	s, err := ReadBundleFS(mapFS(map[string]string{"objects/all.json": string(data)}, taken))
	if err != nil {
		t.Fatal(err)
	}
	want := Strip(&o)
	if diff := cmp.Diff(want, s.Objects); diff != "" {
		t.Error(diff)
	}
}

func TestBundleIsReadableByKubectl(t *testing.T) {
	files := unpack(t, written(t, full()))
	var l struct {
		APIVersion, Kind string
		Items            []struct {
			APIVersion, Kind string
			Metadata         struct{ Name string }
		}
	}
	if err := json.Unmarshal([]byte(files["objects/endpointslices.discovery.k8s.io.json"]), &l); err != nil {
		t.Fatal(err)
	}
	if l.APIVersion != "v1" || l.Kind != "List" || len(l.Items) != 1 || l.Items[0].APIVersion != "discovery.k8s.io/v1" ||
		l.Items[0].Kind != "EndpointSlice" || l.Items[0].Metadata.Name != "orders-x" {
		t.Errorf("%+v", l)
	}
	if _, ok := files["objects/pods.json"]; ok {
		t.Error("pods were not read, yet there is a file that says that there are none")
	}
	if _, ok := files["objects/events.json"]; !ok {
		t.Error("events were read, and no file says that there are none")
	}
}

func TestHandMadeBundle(t *testing.T) {
	files := map[string]string{
		"mine/objects/services.json":        `{"apiVersion":"v1","kind":"ServiceList","items":[{"metadata":{"name":"a","namespace":"x"}},{"metadata":{"name":"b","namespace":"y"}}]}`,
		"mine/objects/pods.yaml":            "apiVersion: v1\nkind: Pod\nmetadata: {name: p, namespace: x}\n---\napiVersion: v1\nkind: Pod\nmetadata: {name: q, namespace: x}\n",
		"mine/objects/z/endpoints.json":     `{"apiVersion":"v1","kind":"List","items":[]}`,
		"mine/objects/networkpolicies.json": `{"apiVersion":"v1","kind":"List","items":[]}`,
		"mine/objects/node.json":            `{"apiVersion":"v1","kind":"Node","metadata":{"name":"w1"}}`,
		"mine/nodes/w1/iptables-save.txt":   "*nat\nCOMMIT\n",
		"mine/nodes/w1/iptables-save-2.txt": "*filter\nCOMMIT\n",
		"mine/nodes/w1/notes.txt":           "mine",
		"mine/.DS_Store":                    "x",
	}
	s, err := ReadBundle(bytes.NewReader(pack(t, files)))
	if err != nil {
		t.Fatal(err)
	}
	type claim struct {
		r  Resource
		ns string
	}
	for c, want := range map[claim]bool{
		{Services, ""}: true, {Services, "x"}: true, {Pods, ""}: false, {Pods, "x"}: true, {Pods, "y"}: false,
		{Endpoints, "z"}: true, {Endpoints, "x"}: false, {NetworkPolicies, ""}: true, {Nodes, ""}: true, {Events, "x"}: false,
	} {
		if got := s.Reads.Has(c.r, c.ns); got != want {
			t.Errorf("%s in %q read: %v, want %v", c.r, c.ns, got, want)
		}
	}
	if len(s.Objects.Pods) != 2 || len(s.Objects.Services) != 2 || len(s.Objects.Nodes) != 1 {
		t.Errorf("objects: %+v", s.Objects)
	}
	if !s.TakenAt.Equal(taken.Truncate(time.Second)) {
		t.Errorf("taken at %s", s.TakenAt)
	}
	want := []*NodeState{{Name: "w1", At: s.TakenAt, Via: "bundle", Texts: []Text{
		{Kind: IptablesSave, Ref: "nodes/w1/iptables-save-2.txt", Status: Done, Content: "*filter\nCOMMIT\n"},
		{Kind: IptablesSave, Ref: "nodes/w1/iptables-save.txt", Status: Done, Content: "*nat\nCOMMIT\n"},
	}}}
	if diff := cmp.Diff(want, s.Nodes); diff != "" {
		t.Error(diff)
	}
	if len(s.Inputs) != 2 || s.Inputs[1].Ref != "nodes/w1/notes.txt" || s.Inputs[1].Error == "" {
		t.Errorf("the file that is none of a bundle is not named: %+v", s.Inputs)
	}
	again, err := ReadBundle(bytes.NewReader(written(t, s)))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(s, again); diff != "" {
		t.Error(diff)
	}
}

// TestBundleChangedByHand: a manifest is not believed against the files.
func TestBundleChangedByHand(t *testing.T) {
	files := unpack(t, written(t, full()))
	delete(files, "objects/services.json")
	delete(files, "nodes/w1/ip-addr.txt")
	files["objects/pods.json"] = `{"apiVersion":"v1","kind":"List","items":[]}`
	files["nodes/w1/sysctl.txt"] = "a = 1"
	s, err := ReadBundleFS(mapFS(files, taken))
	if err != nil {
		t.Fatal(err)
	}
	if rd := s.Reads.Of(Services, "shop"); rd.Status != Failed || rd.Why == "" {
		t.Errorf("services: %+v", rd)
	}
	if !s.Reads.Has(Pods, "shop") {
		t.Error("the pods that were added do not count")
	}
	w1 := s.Node("w1")
	if got := w1.Text(IPAddr); got.Status != Failed || got.Why == "" {
		t.Errorf("ip addr: %+v", got)
	}
	if got := w1.Text(Sysctl); got.Content != "a = 1" {
		t.Errorf("sysctl: %+v", got)
	}
}

func TestReadBundleFile(t *testing.T) {
	dir := t.TempDir()
	packed := filepath.Join(dir, "b.tar.gz")
	data := written(t, full())
	if err := os.WriteFile(packed, data, 0o600); err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join(dir, "b")
	for name, text := range unpack(t, data) {
		p := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	a, err := ReadBundleFile(packed)
	if err != nil {
		t.Fatal(err)
	}
	b, err := ReadBundleFile(folder)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(a, b); diff != "" {
		t.Error(diff)
	}
	if err := os.Symlink("/etc/passwd", filepath.Join(folder, "objects", "pods.json")); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadBundleFile(folder); err == nil {
		t.Error("a link in a folder is followed")
	}
	for _, name := range []string{filepath.Join(dir, "absent"), os.DevNull} {
		if _, err := ReadBundleFile(name); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestMergeInto(t *testing.T) {
	to := &Snapshot{Nodes: []*NodeState{{Name: "w2", Texts: []Text{{Kind: Hostname, Status: Done}}}}}
	s := full()
	s.MergeInto(to)
	if len(to.Nodes) != 4 || len(to.Node("w2").Texts) != 5 || to.TakenAt != taken || len(to.Reads) != len(s.Reads) {
		t.Errorf("%+v", to)
	}
	to.Node("w1").Texts[0].Content = "changed"
	to.Objects.Services[0].Spec.Ports[0].Port = 1
	if diff := cmp.Diff(full(), s); diff != "" {
		t.Errorf("a change of the merged one changed the other:\n%s", diff)
	}
}

// pack makes a tar.gz of files, as a person's tar would.
func pack(t testing.TB, files map[string]string) []byte {
	var entries []tar.Header
	for name, text := range files {
		entries = append(entries, tar.Header{Typeflag: tar.TypeReg, Name: name, Size: int64(len(text)), ModTime: taken.Truncate(time.Second)})
	}
	return packHeaders(t, entries, files)
}

func packHeaders(t testing.TB, entries []tar.Header, files map[string]string) []byte {
	t.Helper()
	var b bytes.Buffer
	gz := gzip.NewWriter(&b)
	tw := tar.NewWriter(gz)
	for _, h := range entries {
		if err := tw.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(tw, files[h.Name]); err != nil {
			t.Fatal(err)
		}
	}
	if err := tw.Close(); err != nil {
		t.Fatal(err)
	}
	if err := gz.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func unpack(t testing.TB, data []byte) map[string]string {
	t.Helper()
	files, err := untar(bytes.NewReader(data), bundleLimits)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for name, f := range files {
		out[name] = string(f.data)
	}
	return out
}

func mapFS(files map[string]string, mtime time.Time) fstest.MapFS {
	fsys := fstest.MapFS{}
	for name, text := range files {
		fsys[name] = &fstest.MapFile{Data: []byte(text), ModTime: mtime, Mode: 0o644}
	}
	return fsys
}

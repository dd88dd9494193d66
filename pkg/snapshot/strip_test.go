package snapshot

import (
	"flag"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

var update = flag.Bool("update", false, "rewrite the golden files")

const marker = "S3CRET"

// plant fills every string, slice, map and pointer below v with the marker and
// the path at which it stands.
func plant(v reflect.Value, path string, depth int) {
	if depth > 24 {
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(marker + ":" + path)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		plant(v.Elem(), path, depth+1)
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			v.SetBytes([]byte(marker + ":" + path))
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		plant(v.Index(0), path+"[]", depth+1)
	case reflect.Map:
		key := reflect.New(v.Type().Key()).Elem()
		plant(key, path+"{key}", depth+1)
		val := reflect.New(v.Type().Elem()).Elem()
		plant(val, path+"{}", depth+1)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, val)
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[intstr.IntOrString]() {
			v.Set(reflect.ValueOf(intstr.FromString(marker + ":" + path + ".StrVal")))
			return
		}
		if v.Type() == reflect.TypeFor[metav1.FieldsV1]() { // must stay JSON
			v.Set(reflect.ValueOf(metav1.FieldsV1{Raw: []byte(`{"f:` + marker + `":{}}`)}))
			return
		}
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() {
				plant(v.Field(i), path+"."+f.Name, depth+1)
			}
		}
	}
}

// survivors lists the paths below v at which the marker still stands.
func survivors(v reflect.Value, path string, out map[string]bool) {
	switch v.Kind() {
	case reflect.String:
		if strings.Contains(v.String(), marker) {
			out[path] = true
		}
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			survivors(v.Elem(), path, out)
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			if strings.Contains(string(v.Bytes()), marker) {
				out[path] = true
			}
			return
		}
		for i := range v.Len() {
			survivors(v.Index(i), path+"[]", out)
		}
	case reflect.Map:
		for it := v.MapRange(); it.Next(); {
			survivors(it.Key(), path+"{key}", out)
			survivors(it.Value(), path+"{}", out)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() {
				survivors(v.Field(i), path+"."+f.Name, out)
			}
		}
	}
}

// planted returns Objects with one object of each kind, every string of which
// is the marker, but for what decides that the object is kept at all.
func planted() Objects {
	var o Objects
	plant(reflect.ValueOf(&o).Elem(), "", 0)
	o.Events[0].InvolvedObject.Kind = "Pod"
	o.ConfigMaps[0].Namespace, o.ConfigMaps[0].Name = ProxyNamespace, "kube-proxy"
	return o
}

// TestStripSurvivors holds every field that gets through Strip to the list in
// testdata, so that none joins it unseen.
func TestStripSurvivors(t *testing.T) {
	o := planted()
	out := Strip(&o)
	found := map[string]bool{}
	survivors(reflect.ValueOf(out), "", found)
	var lines []string
	for p := range found {
		lines = append(lines, p)
	}
	slices.Sort(lines)
	got := strings.Join(lines, "\n") + "\n"
	const golden = "testdata/strip-survivors.txt"
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("fields that survive (-listed +found); a new one is safe only if no secret can be in it:\n%s", diff)
	}
	for _, s := range slots {
		if s.length(&out) != 1 {
			t.Errorf("%s: %d objects survive, want 1", s.id().resource, s.length(&out))
		}
	}
}

// TestSurvivorsHoldNoSecretField goes by words, beside the list: a field whose
// name says what it may hold must not be on it.
func TestSurvivorsHoldNoSecretField(t *testing.T) {
	o := planted()
	found := map[string]bool{}
	survivors(reflect.ValueOf(Strip(&o)), "", found)
	for p := range found {
		for _, word := range []string{"Env", "Args", "Command", "Volume", "Secret", "Token", "HTTPHeaders", "ManagedFields",
			"ServiceAccount", "Lifecycle", "Terminated.Message", "Annotations", ".Data", "BinaryData", "SystemUUID", "MachineID"} {
			if strings.Contains(p, word) {
				t.Errorf("%s survives", p)
			}
		}
	}
}

func TestStripIsIdempotent(t *testing.T) {
	o := planted()
	once := Strip(&o)
	twice := Strip(&once)
	if diff := cmp.Diff(once, twice); diff != "" {
		t.Error(diff)
	}
}

func TestStripSharesNothing(t *testing.T) {
	o := planted()
	before := o.Clone()
	out := Strip(&o)
	plant(reflect.ValueOf(&out).Elem(), "changed", 0)
	out.Pods[0].Labels["x"] = "y"
	if diff := cmp.Diff(before, o); diff != "" {
		t.Errorf("a change of the copy changed the original:\n%s", diff)
	}
}

func TestStripKeepsListedAnnotationsAlone(t *testing.T) {
	s := corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "a", Annotations: map[string]string{
		corev1.LastAppliedConfigAnnotation:    `{"env":"` + marker + `"}`,
		"service.kubernetes.io/topology-mode": "Auto",
		"vault.example/token":                 marker,
	}}}
	got := StripService(&s).Annotations
	if diff := cmp.Diff(map[string]string{"service.kubernetes.io/topology-mode": "Auto"}, got); diff != "" {
		t.Error(diff)
	}
	if !slices.IsSorted(annotations[:len(annotations)-3]) {
		t.Error("keep the list of annotations sorted")
	}
}

func TestStripProbes(t *testing.T) {
	p := corev1.Probe{ProbeHandler: corev1.ProbeHandler{
		Exec:    &corev1.ExecAction{Command: []string{"check", "--password", marker}},
		HTTPGet: &corev1.HTTPGetAction{Path: "/health?token=" + marker, HTTPHeaders: []corev1.HTTPHeader{{Name: "Authorization", Value: marker}}},
	}, PeriodSeconds: 7}
	got := probe(&p)
	want := corev1.Probe{ProbeHandler: corev1.ProbeHandler{
		Exec: &corev1.ExecAction{}, HTTPGet: &corev1.HTTPGetAction{Path: "/health?REDACTED"},
	}, PeriodSeconds: 7}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestRedactMessage(t *testing.T) {
	for _, c := range []struct{ reason, in, want string }{
		{"FailedScheduling", "0/3 nodes are available: 3 Insufficient cpu.", "0/3 nodes are available: 3 Insufficient cpu."},
		{"Unhealthy", "Readiness probe failed: HTTP probe failed with statuscode: 503", "Readiness probe failed: HTTP probe failed with statuscode: 503"},
		{"Unhealthy", `Readiness probe failed: Get "http://10.1.2.3:8080/ready?key=S3CRET": dial tcp 10.1.2.3:8080: connect: connection refused`,
			`Readiness probe failed: Get "http://10.1.2.3:8080/ready?REDACTED": dial tcp 10.1.2.3:8080: connect: connection refused`},
		{"Unhealthy", "Readiness probe failed: dial tcp 10.1.2.3:8080: i/o timeout", "Readiness probe failed: dial tcp 10.1.2.3:8080: i/o timeout"},
		{"Unhealthy", "Liveness probe failed: login with S3CRET refused", "Liveness probe failed: " + notKept},
		{"Unhealthy", "Liveness probe failed: " + notKept, "Liveness probe failed: " + notKept},
		{"Unhealthy", `Readiness probe failed: command "login S3CRET" timed out`, "Readiness probe failed: command timed out"},
		{"Unhealthy", "S3CRET", ""},
		{"FailedPostStartHook", `Exec lifecycle hook ([/bin/login S3CRET]) for Container "a" failed`, ""},
		{"Failed", "Failed to pull image: https://robot:S3CRET@registry.example/x: denied", "Failed to pull image: https://REDACTED@registry.example/x: denied"},
		{"X", "Authorization: Bearer S3CRETS3CRET", "Authorization: Bearer REDACTED"},
		{"X", "db_password=S3CRET, next", "db_password=REDACTED, next"},
	} {
		if got := redactMessage(c.reason, c.in); got != c.want {
			t.Errorf("%s %q:\n got %q\nwant %q", c.reason, c.in, got, c.want)
		}
	}
	long := RedactText(strings.Repeat("ü", 2000))
	if len(long) > maxText || !strings.HasSuffix(long, "...") || strings.Contains(long, "\uFFFD") {
		t.Errorf("a long text is cut to %d bytes: %q", len(long), long[len(long)-8:])
	}
	if again := RedactText(long); again != long {
		t.Error("cutting twice changes the text")
	}
}

func TestStripConfigMap(t *testing.T) {
	const config = `
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: ipvs
clusterCIDR: 10.244.0.0/16,fd00::/56
clientConnection: {kubeconfig: /var/lib/S3CRET}
nodePortAddresses: [10.0.0.0/8, "S3CRET-but-an-address-field"]
iptables: {masqueradeBit: 14, syncPeriod: 30s, unknown: S3CRET}
ipvs: {strictARP: true, excludeCIDRs: [10.9.0.0/16], scheduler: {S3CRET: S3CRET}}
conntrack: {maxPerCore: 32768}
featureGates: {NFTablesProxyMode: true, S3CRET: S3CRET}
added: S3CRET
`
	cm := corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ProxyNamespace, Name: "kube-proxy"},
		Data:       map[string]string{"config.conf": config, "kubeconfig.conf": marker},
		BinaryData: map[string][]byte{"config.conf": []byte(marker)},
	}
	got, ok := StripConfigMap(&cm)
	if !ok {
		t.Fatal("kube-proxy's ConfigMap is not kept")
	}
	want := map[string]string{"config.conf": `apiVersion: kubeproxy.config.k8s.io/v1alpha1
clusterCIDR: 10.244.0.0/16,fd00::/56
conntrack:
  maxPerCore: 32768
featureGates:
  NFTablesProxyMode: true
iptables:
  masqueradeBit: 14
  syncPeriod: 30s
ipvs:
  excludeCIDRs:
  - 10.9.0.0/16
  strictARP: true
kind: KubeProxyConfiguration
mode: ipvs
nodePortAddresses:
- 10.0.0.0/8
- S3CRET-but-an-address-field
`}
	if diff := cmp.Diff(want, got.Data); diff != "" {
		t.Error(diff)
	}
	for _, c := range []struct{ namespace, name string }{{"default", "kube-proxy"}, {ProxyNamespace, "coredns"}} {
		if _, ok := StripConfigMap(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: c.name}}); ok {
			t.Errorf("%s/%s is kept", c.namespace, c.name)
		}
	}
	for _, bad := range []string{"a: [", "- " + marker, marker, "\x00", "a: &a [*a]"} {
		if got := stripProxyConfig(bad); strings.Contains(got, marker) {
			t.Errorf("%q: %q", bad, got)
		}
	}
}

func TestStripReplacementConfigMap(t *testing.T) {
	cilium := corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ProxyNamespace, Name: "cilium-config"},
		Data: map[string]string{"kube-proxy-replacement": "true", "etcd-config": marker, "ipam": "cluster-pool"}}
	got, ok := StripConfigMap(&cilium)
	if diff := cmp.Diff(map[string]string{"kube-proxy-replacement": "true", "ipam": "cluster-pool"}, got.Data); !ok || diff != "" {
		t.Errorf("%t %s", ok, diff)
	}
	antrea := corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ProxyNamespace, Name: "antrea-config"},
		Data: map[string]string{"antrea-agent.conf": "antreaProxy: {enable: true, proxyAll: true, nodePortAddresses: [" + marker + "]}\nsecret: " + marker, "antrea-cni.conflist": marker}}
	got, ok = StripConfigMap(&antrea)
	if diff := cmp.Diff(map[string]string{"antrea-agent.conf": "antreaProxy:\n  enable: true\n  proxyAll: true\n"}, got.Data); !ok || diff != "" {
		t.Errorf("%t %s", ok, diff)
	}
	if again, _ := StripConfigMap(&got); again.Data["antrea-agent.conf"] != got.Data["antrea-agent.conf"] {
		t.Error("stripping twice changes it")
	}
	if got := stripAntrea(marker); strings.Contains(got, marker) {
		t.Errorf("%q", got)
	}
}

func FuzzStripProxyConfig(f *testing.F) {
	f.Add("mode: ipvs\nipvs: {strictARP: true}")
	f.Add("a: &a {mode: *a}")
	f.Fuzz(func(t *testing.T, text string) {
		once := stripProxyConfig(text)
		if twice := stripProxyConfig(once); once != twice {
			t.Errorf("stripping twice:\n%q\n%q", once, twice)
		}
	})
}

func TestAddAndMerge(t *testing.T) {
	var o Objects
	for _, obj := range []runtime.Object{pod("b", "2", "old"), pod("b", "1", ""), pod("a", "9", ""), pod("b", "2", "new"), &corev1.Node{}} {
		if !o.Add(obj) {
			t.Fatalf("%T is not taken", obj)
		}
	}
	if o.Add(&corev1.Secret{}) {
		t.Error("a Secret is taken")
	}
	o.Sort()
	var got []string
	for _, p := range o.Pods {
		got = append(got, fmt.Sprintf("%s/%s %s", p.Namespace, p.Name, p.Spec.NodeName))
	}
	if diff := cmp.Diff([]string{"a/9 ", "b/1 ", "b/2 new"}, got); diff != "" {
		t.Error(diff)
	}
	var given Objects
	given.Append(&o)
	if len(given.Pods) != len(o.Pods) || len(given.Nodes) != 1 {
		t.Errorf("appended: %+v", given)
	}
	other := Objects{Pods: []corev1.Pod{*pod("b", "1", "other"), *pod("c", "1", "")}}
	o.Merge(&other)
	if len(o.Pods) != 4 || o.Pods[1].Spec.NodeName != "other" {
		t.Errorf("merged: %v", o.Pods)
	}
}

func pod(namespace, name, node string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: corev1.PodSpec{NodeName: node}}
}

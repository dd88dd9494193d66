package walk

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

var byAddr = cmp.Comparer(func(a, b netip.Addr) bool { return a == b })

func TestParseTarget(t *testing.T) {
	web := func(port int32) Target { return Target{Namespace: "shop", Name: "web", Port: port} }
	in := func(ns string, port int32) Target { return Target{Namespace: ns, Name: "web", Port: port} }
	at := func(a string, port int32, proto corev1.Protocol) Target {
		return Target{Addr: netip.MustParseAddr(a), Port: port, Protocol: proto}
	}
	tests := map[string]Target{
		"web":                                web(0),
		" web ":                              web(0),
		"web.":                               web(0),
		"web:80":                             web(80),
		"web:80/UDP":                         {Namespace: "shop", Name: "web", Port: 80, Protocol: corev1.ProtocolUDP},
		"svc/web":                            web(0),
		"svc/web:80":                         web(80),
		"Service/web":                        web(0),
		"services/other/web":                 in("other", 0),
		"svc/other/web":                      in("other", 0),
		"other/web":                          in("other", 0),
		"other/web:80":                       in("other", 80),
		"other/udp":                          {Namespace: "other", Name: "udp"},
		"svc/udp":                            {Namespace: "shop", Name: "udp"},
		"web.other":                          in("other", 0),
		"WEB.Other:80":                       in("other", 80),
		"web.other.svc":                      in("other", 0),
		"web.other.svc.":                     in("other", 0),
		"web.other.svc.cluster.local":        in("other", 0),
		"web.other.svc.cluster.local.:80":    in("other", 80),
		"web.other.svc.corp.example:80/tcp":  {Namespace: "other", Name: "web", Port: 80, Protocol: corev1.ProtocolTCP},
		"web-0.web.other.svc.cluster.local":  in("other", 0),
		"web-0.web.other.svc:80":             in("other", 80),
		"http://web":                         web(80),
		"https://web.other/":                 in("other", 443),
		"HTTPS://Web.Other/":                 in("other", 443),
		"http://web.other:8080/health?x=1#y": in("other", 8080),
		"http://web.other?q=a@b:1":           in("other", 80),
		"grpc://web.other:50051":             in("other", 50051),
		"redis://web.other":                  in("other", 0),
		"http://[fd00::1]:8080/":             at("fd00::1", 8080, ""),
		"http://10.96.0.50":                  at("10.96.0.50", 80, ""),
		"10.96.0.50":                         at("10.96.0.50", 0, ""),
		"10.96.0.50:80":                      at("10.96.0.50", 80, ""),
		"10.96.0.50:53/udp":                  at("10.96.0.50", 53, corev1.ProtocolUDP),
		"10.96.0.50:53/SCTP":                 at("10.96.0.50", 53, corev1.ProtocolSCTP),
		"fd00::1":                            at("fd00::1", 0, ""),
		"FD00::A":                            at("fd00::a", 0, ""),
		"fd00:0:0:0:0:0:0:1":                 at("fd00::1", 0, ""),
		"[fd00::1]":                          at("fd00::1", 0, ""),
		"[fd00::1]:53":                       at("fd00::1", 53, ""),
		"[fd00::1]:53/udp":                   at("fd00::1", 53, corev1.ProtocolUDP),
		"::ffff:10.96.0.50":                  at("10.96.0.50", 0, ""),
		":30080":                             {NodePort: true, Port: 30080},
		":30080/udp":                         {NodePort: true, Port: 30080, Protocol: corev1.ProtocolUDP},
		"worker-1:30080":                     {Namespace: "shop", Name: "worker-1", Port: 30080},
		"worker-1.example.com:30080":         {NodePort: true, Node: "worker-1.example.com", Port: 30080},
		"ip-10-0-1-5.ec2.internal:30080/tcp": {NodePort: true, Node: "ip-10-0-1-5.ec2.internal", Port: 30080, Protocol: corev1.ProtocolTCP},
		"https://user:secret@web.other:8443/path?a=b@c": in("other", 8443),
	}
	for text, want := range tests {
		t.Run(text, func(t *testing.T) {
			got, err := ParseTarget(text, "shop")
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(got.Text, "secret") {
				t.Errorf("the password is kept: %q", got.Text)
			}
			got.Text = ""
			if d := cmp.Diff(want, got, byAddr); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestParseTargetRefuses(t *testing.T) {
	tests := map[string]string{
		"":                                  "it is empty",
		"  ":                                "it is empty",
		".":                                 "not a Kubernetes name",
		"..":                                "not a Kubernetes name",
		".:80":                              "not a Kubernetes name",
		":":                                 "is not a port",
		":0":                                "is not a port",
		":65536":                            "is not a port",
		":-1":                               "is not a port",
		"web:":                              "is not a port",
		"web:http":                          "is not a port",
		"web:80/icmp":                       "no protocol",
		"10.96.0.50:0":                      "is not a port",
		"10.96.0.50:65536/tcp":              "is not a port",
		"10.96.0.50/udp":                    "not a Kubernetes name",
		"10.96.0.0/16":                      "not a Kubernetes name",
		"fe80::1%eth0":                      "with a zone",
		"[fe80::1%eth0]:80":                 "with a zone",
		"[fd00::1":                          "not a Kubernetes name",
		"Web":                               "not a Kubernetes name",
		"web_1":                             "not a Kubernetes name",
		"-web":                              "not a Kubernetes name",
		"a/b/c":                             "not a Kubernetes name",
		"/web":                              "not a Kubernetes name",
		"shop/":                             "not a Kubernetes name",
		"svc/":                              "not a Kubernetes name",
		"svc/a/b/c":                         "not a Kubernetes name",
		"shop/web.v2":                       "not a Kubernetes name",
		"a..b":                              "outside the cluster",
		"www.example.com":                   "outside the cluster",
		"a.-b.example.com:80":               "not a Kubernetes name",
		"10-244-1-5.shop.pod.cluster.local": "a pod's name",
		"http://":                           "not a URL",
		"http:///path":                      "not a URL",
		"http://we b/":                      "not a URL",
		"web;reboot":                        "not a Kubernetes name",
		"web\n$(reboot)":                    "not a Kubernetes name",
		strings.Repeat("a", 64):             "not a Kubernetes name",
		"http://u:secret@we_b/":             "not a Kubernetes name",
	}
	for text, want := range tests {
		t.Run(text, func(t *testing.T) {
			got, err := ParseTarget(text, "shop")
			if err == nil {
				t.Fatalf("accepted as %+v", got)
			}
			if !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
				t.Errorf("%v; want it to say %q, and no password", err, want)
			}
		})
	}
}

func FuzzParseTarget(f *testing.F) {
	for _, s := range []string{"web", "web.", ".", "svc/a/b", "[::1]:80/udp", "http://u:p@h:1/x", ":30080", "a.b.c.svc:1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, err := ParseTarget(s, "shop")
		switch {
		case err != nil:
		case !got.IsAddress() && (!validLabel(got.Name) || !validLabel(got.Namespace)):
			t.Errorf("%q gives a name that is none: %+v", s, got)
		case got.Node != "" && !validName(got.Node):
			t.Errorf("%q gives a node that is none: %+v", s, got)
		case got.Port < 0 || got.Port > 65535:
			t.Errorf("%q gives port %d", s, got.Port)
		}
	})
}

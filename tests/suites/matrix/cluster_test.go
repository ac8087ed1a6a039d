package matrix

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	_ "embed"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/netip"
	"strings"
	"testing"
	"text/template"
	"time"

	"clusterctl/tests/lab/machines"
)

// place is the location of the machines, and how load balancer addresses are announced.
type place struct {
	addressB    string // address of machine b; that of a is 10.99.0.21
	pool        string // settings of the pool of load balancer addresses
	outside     []string
	hasGateways bool                     // whether Gateways have their own addresses
	announce    func(*testing.T, *world) // starts what receives the announcements
}

// oneNetwork has machines in one network. The addresses are announced to the neighbours in it.
var oneNetwork = place{addressB: "10.99.0.22", outside: []string{"10.99.0.1", "fd00:99::1"},
	pool: `addresses = ["10.99.0.128-10.99.0.191", "fd00:99::128-fd00:99::191"]`}

// routedNetworks has machines with a router between them. The addresses are announced to it by BGP, and it is also the
// client outside.
var routedNetworks = place{addressB: "10.99.1.22", pool: `
  addresses = ["203.0.113.0/24", "2001:db8:2::/112"]
  bgp {
    asn = 64513
    peer {
      address = "10.99.0.1"
      asn     = 64512
    }
  }
`, outside: []string{"10.99.0.1", "fd00:99::1", "10.99.1.1", "fd00:99:1::1"}, hasGateways: true, announce: startRouter}

// configuration returns a configuration with a control plane and two nodes, with addresses of both families.
func (p place) configuration(mode string) string {
	return strings.NewReplacer("@GATEWAYS@", map[bool]string{false: "machines", true: "load_balancer"}[p.hasGateways],
		"@MODE@", mode, "@POOL@", p.pool, "@B@", p.addressB, "@B6@", machines.IPv6Of(p.addressB)).
		Replace(`
cluster "matrix" {
  pod_cidrs     = ["10.244.0.0/16", "fd00:244::/48"]
  service_cidrs = ["10.96.0.0/16", "fd00:96::/112"]
  proxy { mode = "@MODE@" }
  ingress {
    gateway_api       = true
    gateway_addresses = "@GATEWAYS@"
    connect_timeout   = "1s"
  }
}

load_balancer "outside" {
  @POOL@
}

machine "control" {
  address        = "10.99.0.11"
  second_address = "fd00:99::11"
  roles          = ["control-plane"]
  ssh { user = "root" }
}

machine "node" {
  for_each       = { a = "10.99.0.21 fd00:99::21", b = "@B@ @B6@" }
  address        = split(" ", each.value)[0]
  second_address = split(" ", each.value)[1]
  roles          = ["node"]
  ssh { user = "root" }
}
`)
}

// service is a service of the table.
type service struct {
	Name, Set, Place string // labels of its pods; without a place it has the pods of both machines
	Policy           string // internal traffic policy
	External         string // external traffic policy
	Type, Affinity   string
	Ranges           []string
	IPs              []string // external
	Alias            string
	Headless         bool
}

func services() (list []service) {
	add := func(s service) {
		s.Set, s.Type, s.Policy, s.Affinity = firstNonEmpty(s.Set, "plain"), firstNonEmpty(s.Type,
			"LoadBalancer"), firstNonEmpty(s.Policy, "Cluster"), firstNonEmpty(s.Affinity, "None")
		s.External = firstNonEmpty(s.External, "Cluster")
		if s.Type == "LoadBalancer" && len(s.Ranges) == 0 {
			s.IPs = []string{fmt.Sprintf("192.0.2.%d", len(list)+1), fmt.Sprintf("2001:db8::%d", len(list)+1)}
		}
		list = append(list, s)
	}
	for _, policy := range []string{"Cluster", "Local"} {
		for _, place := range []string{"here", "there", "both", "none"} {
			name := strings.ToLower(policy) + "-" + place
			if place == "both" {
				place = ""
			}
			add(service{Name: name, Place: place, Policy: policy, External: policy})
		}
	}
	for _, place := range []string{"here", "there"} {
		add(service{Name: "guarded-" + place, Set: "guarded", Place: place})
		add(service{Name: "narrow-" + place, Set: "narrow", Place: place})
		add(service{Name: "blocked-" + place, Set: "blocked", Place: place, External: "Local"})
		add(service{Name: "headless-" + place, Place: place, Type: "ClusterIP", Headless: true})
	}
	add(service{Name: "headless-both", Type: "ClusterIP", Headless: true})
	add(service{Name: "sticky", Type: "ClusterIP", Affinity: "ClientIP"})
	add(service{Name: "ranged-in", Ranges: []string{"10.99.0.0/16", "fd00:99::/32"}})
	add(service{Name: "ranged-out", Ranges: []string{"198.51.100.0/24", "2001:db8:1::/48"}})
	add(service{Name: "alias", Type: "ExternalName", Alias: "cluster-both.matrix.svc.cluster.local"})
	add(service{Name: "lost", Type: "ExternalName", Alias: "nobody.invalid"})
	return list
}

// routedServices are the services that Ingresses and HTTPRoutes use as backends.
var routedServices = []string{"cluster-here", "cluster-there", "cluster-both", "cluster-none", "guarded-here",
	"guarded-there"}

func firstNonEmpty(a, b string) string {
	if a == "" {
		return b
	}
	return a
}

// otherObjects returns the other objects of the cluster.
func otherObjects(t *testing.T, image string, outside []string) string {
	t.Helper()
	var blocks []string
	for _, ip := range outside {
		a := netip.MustParseAddr(ip)
		blocks = append(blocks, netip.PrefixFrom(a, a.BitLen()).String())
	}
	certificate, key := newCertificate(t, "*.tls.example", "*.gate.example")
	var out bytes.Buffer
	if err := template.Must(template.New("").Parse(objectManifest)).Execute(&out, map[string]any{
		"Image": image, "Services": services(), "Routed": routedServices, "Outside": blocks, "Certificate": certificate,
		"Key":  key,
		"Sets": []string{"plain", "guarded", "narrow", "blocked"}, "Clients": []string{"pod", "friend", "muted"},
		"Places": map[string]string{"here": "node-a", "there": "node-b"},
	}); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// newCertificate returns a self-signed certificate and its key for a Secret.
func newCertificate(t *testing.T, names ...string) (certificate, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: names,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	text := func(kind string, content []byte) string {
		return base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: content}))
	}
	return text("CERTIFICATE", der), text("PRIVATE KEY", secret)
}

//go:embed testdata/objects.yaml
var objectManifest string

// Command ingress measures kube-ingress' engine against Debian's nginx and haproxy, one proxy after the other in one
// run. All have the same clients and the same endpoints, which are replaced one after the other during the measurement.
// It prints a table for docs/benchmarks-network.md.
package main

import (
	"bytes"
	"cmp"
	"crypto/x509"
	"encoding/pem"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"clusterctl/certs"
)

const hostName = "web.example"

func main() {
	serve := flag.Bool("serve", false, "be the proxy that is measured; the program starts itself so")
	each := flag.Duration("time", 4*time.Second, "how long each number of connections is measured")
	roll := flag.Duration("roll", 500*time.Millisecond, "time between two endpoints that are replaced; 0: none are")
	rounds := flag.Int("rounds", 3, "how often everything is measured")
	flag.Parse()
	var err error
	if *serve {
		err = serveKubeIngress(flag.Args())
	} else {
		err = measureAll(*each, *roll, *rounds)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func measureAll(each, roll time.Duration, rounds int) error {
	dir, err := os.MkdirTemp("", "bench-ingress-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	roots, err := writeCertificate(dir)
	if err != nil {
		return err
	}
	// Each round measures all proxies, so that other load on the machine affects them equally. The table shows the
	// median round of each cell.
	cells := map[string][]result{}
	var order []string
	for range rounds {
		for _, p := range []func(dir string) measuredProxy{newKubeIngress, newNginx, newHaproxy} {
			list, err := measureProxy(p(dir), roots, each, roll)
			if err != nil {
				return err
			}
			for _, r := range list {
				fmt.Fprintf(os.Stderr, "%+v\n", r)
				if cells[r.cell] == nil {
					order = append(order, r.cell)
				}
				cells[r.cell] = append(cells[r.cell], r)
			}
		}
	}
	fmt.Println("| proxy | TLS | connections | requests/s | p50 ms | p99 ms | CPU µs/request | failed, all rounds " +
		"|\n|---|---|---|---|---|---|---|---|")
	for _, cell := range order {
		list, failed := cells[cell], 0
		for _, r := range list {
			failed += r.failed
		}
		slices.SortFunc(list, func(a, b result) int { return cmp.Compare(a.rate, b.rate) })
		r := list[len(list)/2]
		fmt.Printf("| %s | %.0f | %.2f | %.2f | %.1f | %d |\n", cell, r.rate, r.p50, r.p99, r.cpu, failed)
	}
	return nil
}

// result is the measurement of a proxy with a number of connections in one round.
type result struct {
	cell                string
	rate, p50, p99, cpu float64 // requests/s, ms, ms, µs for each request
	failed              int
}

// measureProxy measures one proxy.
func measureProxy(p measuredProxy, roots *x509.CertPool, each, roll time.Duration) (list []result, err error) {
	pods, err := newBackends(4)
	if err != nil {
		return nil, err
	}
	defer pods.stop()
	if err := p.start(pods.addresses()); err != nil {
		return nil, fmt.Errorf("start %s: %w", p.label(), err)
	}
	defer p.stop()
	if err := waitFor(p.plain()); err != nil {
		return nil, err
	}
	for _, secure := range []bool{false, true} {
		for _, conns := range []int{1, 64, 512} {
			l := &loadClients{address: p.plain(), conns: conns}
			cell := fmt.Sprintf("%s | no | %d", p.label(), conns)
			if secure {
				l.address, l.roots, cell = p.secure(), roots, fmt.Sprintf("%s | yes | %d", p.label(), conns)
			}
			// Warm up connections to endpoints, and workers. A proxy that is reloaded too often may have missed the
			// last change, so it receives the endpoints again.
			for try := 0; ; try++ {
				err := l.run(time.Second)
				if err == nil {
					break
				}
				if try == 5 {
					return nil, fmt.Errorf("%s: %w", p.label(), err)
				}
				if err := p.set(pods.addresses()); err != nil {
					return nil, err
				}
			}
			done, rolled := make(chan struct{}), make(chan error, 1)
			go func() { rolled <- pods.replaceContinuously(roll, done, p.set) }()
			before := p.cpu()
			err := l.run(each)
			used := p.cpu() - before
			close(done)
			if rollErr := <-rolled; err == nil {
				err = rollErr
			}
			if err != nil {
				return nil, fmt.Errorf("%s: %w", p.label(), err)
			}
			list = append(list, result{
				cell, float64(l.answered) / each.Seconds(), l.percentile(50), l.percentile(99),
				float64(used.Microseconds()) / float64(max(l.answered, 1)), l.failed,
			})
		}
	}
	return list, nil
}

// writeCertificate writes the certificate that all proxies present: one file with the certificate and its key, as
// haproxy requires it, and each alone.
func writeCertificate(dir string) (*x509.CertPool, error) {
	ca, err := certs.NewCA("bench", 0, time.Now())
	if err != nil {
		return nil, err
	}
	pair, err := certs.Issue(
		ca,
		certs.Request{CommonName: hostName, Hosts: []string{hostName},
			Usages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}},
		time.Now(),
	)
	if err != nil {
		return nil, err
	}
	key := pair.Key
	if block, _ := pem.Decode(key); block == nil {
		return nil, fmt.Errorf("the key is not PEM")
	}
	for file, text := range map[string][]byte{"cert.pem": pair.Cert, "key.pem": key,
		"both.pem": bytes.Join([][]byte{pair.Cert, key}, []byte("\n"))} {
		if err := os.WriteFile(filepath.Join(dir, file), text, 0o644); err != nil {
			return nil, err
		}
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca.Cert)
	return roots, nil
}

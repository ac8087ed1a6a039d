// Command issuer is an external issuer of tokens (OIDC) for the tests. It serves its keys, writes one token for its
// user ann and an AuthenticationConfiguration that names the issuer, and ends after a time limit.
package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"clusterctl/daemons/run"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:8443", "address to serve on")
	dir := flag.String("dir", ".", "where token and authentication.yaml are written")
	limit := flag.Duration("for", 5*time.Minute, "after which it ends")
	flag.Parse()
	ctx, cancel := context.WithTimeout(context.Background(), *limit)
	defer cancel()
	if err := runServer(ctx, *listen, *dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func runServer(ctx context.Context, listen, dir string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	host, _, err := net.SplitHostPort(listen)
	if err != nil {
		return err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), IPAddresses: []net.IP{net.ParseIP(host)}, NotBefore: time.Now().Add(-time.Minute),
		NotAfter: time.Now().Add(time.Hour),
		IsCA:     true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return fmt.Errorf("make a certificate: %w", err)
	}
	url := "https://" + listen
	tlsConfig := &tls.Config{
		MinVersion:   tls.VersionTLS12,
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}},
	}
	if err := writeFiles(dir, url, key, der); err != nil {
		return err
	}
	ln, err := net.Listen("tcp", listen)
	if err != nil {
		return fmt.Errorf("serve on %s: %w", listen, err)
	}
	return run.Serve(ctx, ln, newHandler(url, key), tlsConfig, time.Second,
		slog.New(slog.NewTextHandler(os.Stderr, nil)))
}

func newHandler(url string, key *ecdsa.PrivateKey) http.Handler {
	mux := http.NewServeMux()
	answer := func(what any) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			_ = json.NewEncoder(w).Encode(what) // an error means that the client has closed the connection
		}
	}
	mux.HandleFunc("/.well-known/openid-configuration",
		answer(map[string]any{"issuer": url, "jwks_uri": url + "/keys"}))
	mux.HandleFunc(
		"/keys",
		answer(
			jose.JSONWebKeySet{
				Keys: []jose.JSONWebKey{{Key: key.Public(), KeyID: "one", Algorithm: "ES256", Use: "sig"}},
			},
		),
	)
	return mux
}

const configuration = `apiVersion: apiserver.config.k8s.io/v1
kind: AuthenticationConfiguration
jwt:
- issuer:
    url: %s
    audiences: [cluster]
    certificateAuthority: |
      %s
  claimMappings:
    username: {expression: "'corp:' + claims.sub"}
    groups: {claim: groups, prefix: "corp:"}
`

func writeFiles(dir, url string, key *ecdsa.PrivateKey, der []byte) error {
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: key, KeyID: "one"}},
		nil)
	if err != nil {
		return err
	}
	token, err := jwt.Signed(signer).
		Claims(map[string]any{"iss": url, "aud": "cluster", "sub": "ann", "groups": []string{"devs"},
			"exp": time.Now().Add(time.Hour).Unix()}).
		Serialize()
	if err != nil {
		return err
	}
	ca := strings.TrimSpace(string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	text := fmt.Sprintf(configuration, url, strings.ReplaceAll(ca, "\n", "\n      "))
	return errors.Join(os.WriteFile(filepath.Join(dir, "authentication.yaml"), []byte(text), 0o600),
		os.WriteFile(filepath.Join(dir, "token"), []byte(token), 0o600))
}

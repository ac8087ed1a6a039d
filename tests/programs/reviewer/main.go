// Command reviewer is an external webhook server for the tests. An API server asks it who the user of a token is
// (TokenReview) and whether users may make requests (SubjectAccessReview), and sends it audit events. It writes the
// kubeconfigs for these webhooks and what it received, and ends after a time limit.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"clusterctl/certs"
	"clusterctl/daemons/run"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:8444", "address to serve on")
	name := flag.String("name", "corp", "what its users' names begin with")
	dir := flag.String("dir", ".", "where {tokens,access,events}.conf, asked and events are written")
	limit := flag.Duration("for", 5*time.Minute, "after which it ends")
	flag.Parse()
	ctx, cancel := context.WithTimeout(context.Background(), *limit)
	defer cancel()
	if err := serveReviews(ctx, *listen, *name, *dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func serveReviews(ctx context.Context, listen, name, dir string) error {
	host, _, err := net.SplitHostPort(listen)
	if err != nil {
		return err
	}
	now := time.Now()
	ca, err := certs.NewCA(name, time.Hour, now)
	if err != nil {
		return err
	}
	own, err := certs.Issue(
		ca,
		certs.Request{
			CommonName: name,
			Hosts:      []string{host},
			Usages:     []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
			Lifetime:   time.Hour,
		},
		now,
	)
	if err != nil {
		return err
	}
	client, err := certs.Issue(
		ca,
		certs.Request{
			CommonName: "apiserver",
			Usages:     []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
			Lifetime:   time.Hour,
		},
		now,
	)
	if err != nil {
		return err
	}
	pair, err := tls.X509KeyPair(own.Cert, own.Key)
	if err != nil {
		return err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca.Cert)
	r := &reviewer{name: name, dir: dir}
	tlsConfig := &tls.Config{
		MinVersion:   tls.VersionTLS12,
		Certificates: []tls.Certificate{pair},
		ClientAuth:   tls.RequireAndVerifyClientCert,
		ClientCAs:    pool,
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for _, of := range []string{"tokens", "access", "events"} {
		text, err := certs.Kubeconfig(name, "https://"+listen+"/"+of, "apiserver", ca.Cert, client)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, of+".conf"), text, 0o600); err != nil {
			return err
		}
	}
	ln, err := net.Listen("tcp", listen)
	if err != nil {
		return fmt.Errorf("serve on %s: %w", listen, err)
	}
	return run.Serve(ctx, ln, r.handler(), tlsConfig, time.Second, slog.New(slog.NewTextHandler(os.Stderr, nil)))
}

// reviewer answers reviews, and writes what it receives to files.
type reviewer struct {
	name, dir string
	mu        sync.Mutex // guards the files
}

func (r *reviewer) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /tokens", r.reviewToken)
	mux.HandleFunc("POST /access", r.reviewAccess)
	mux.HandleFunc("POST /events", r.recordEvents)
	return mux
}

// appendLine appends a line to one of the files.
func (r *reviewer) appendLine(file, line string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	f, err := os.OpenFile(filepath.Join(r.dir, file), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(f, line)
	return errors.Join(err, f.Close())
}

// writeAnswer sends the review with the answer in it, or an error.
func writeAnswer(w http.ResponseWriter, review any, err error) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(review) // an error means that the client has closed the connection
}

// reviewToken accepts the token ticket-USER as the user NAME:USER.
func (r *reviewer) reviewToken(w http.ResponseWriter, q *http.Request) {
	var review authenticationv1.TokenReview
	if err := json.NewDecoder(q.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if user, ok := strings.CutPrefix(review.Spec.Token, "ticket-"); ok {
		review.Status = authenticationv1.TokenReviewStatus{Authenticated: true, Audiences: review.Spec.Audiences,
			User: authenticationv1.UserInfo{Username: r.name + ":" + user, Groups: []string{r.name + ":devs"}}}
	}
	writeAnswer(w, review, r.appendLine("asked", "token "+review.Status.User.Username))
}

// reviewAccess allows its own users to read config maps, and denies eve everything.
func (r *reviewer) reviewAccess(w http.ResponseWriter, q *http.Request) {
	var review authorizationv1.SubjectAccessReview
	if err := json.NewDecoder(q.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	at, path := review.Spec.ResourceAttributes, review.Spec.NonResourceAttributes
	line := "access " + review.Spec.User
	switch {
	case at != nil:
		line += " " + at.Verb + " " + at.Resource + " in " + at.Namespace
	case path != nil:
		line += " " + path.Verb + " " + path.Path
	}
	user, ours := strings.CutPrefix(review.Spec.User, r.name+":")
	switch {
	case ours && user == "eve":
		review.Status = authorizationv1.SubjectAccessReviewStatus{Denied: true, Reason: r.name + " does not trust her"}
	case ours && at != nil && at.Resource == "configmaps" && (at.Verb == "get" || at.Verb == "list"):
		review.Status = authorizationv1.SubjectAccessReviewStatus{Allowed: true, Reason: r.name + " says so"}
	}
	writeAnswer(w, review, r.appendLine("asked", line))
}

// recordEvents writes a line for each audit event.
func (r *reviewer) recordEvents(w http.ResponseWriter, q *http.Request) {
	var list auditv1.EventList
	if err := json.NewDecoder(q.Body).Decode(&list); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	for _, e := range list.Items {
		line := e.User.Username + " " + e.Verb + " " + e.RequestURI
		if e.ResponseStatus != nil {
			line += fmt.Sprintf(" %d", e.ResponseStatus.Code)
		}
		if err := r.appendLine("events", line); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
	}
}

package apiserver_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"clusterctl/certs"
)

const auditEverything = `
apiVersion: audit.k8s.io/v1
kind: Policy
rules: [{level: Metadata}]
`

// A read on the fast path has the same response, refusal and audit record as on the ordinary path, which a query
// selects.
func TestFastPathRespondsLikeTheOrdinaryPath(t *testing.T) {
	c, log := startAudited(t, auditEverything)
	ctx := context.Background()
	admin := c.configFor(certs.Admin())
	client := kubernetes.NewForConfigOrDie(admin)
	large := strings.Repeat("0123456789", 50_000)
	for name, value := range map[string]string{"small": "v", "large": large} {
		if _, err := client.CoreV1().ConfigMaps("default").Create(ctx,
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"k": value}},
			metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	age := regexp.MustCompile(`"[0-9]+s"`) // in a table
	users := map[string]*http.Client{}
	for name, cfg := range map[string]*rest.Config{"admin": admin,
		"nobody": c.configFor(certs.Request{CommonName: "nobody"})} {
		h, err := rest.HTTPClientFor(cfg)
		if err != nil {
			t.Fatal(err)
		}
		users[name] = h
	}
	get := func(user, path, accept string) (string, error) {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+c.addr+path, nil)
		if err != nil {
			return "", err
		}
		r.Header.Set("Accept", accept)
		answer, err := users[user].Do(r)
		if err != nil {
			return "", err
		}
		defer func() { _ = answer.Body.Close() }()
		body, err := io.ReadAll(answer.Body)
		header := answer.Header
		header.Del("Date")
		header.Del("Audit-Id")
		return fmt.Sprintln(answer.Status, header, age.ReplaceAllString(string(body), "age")), err
	}
	const table = "application/json;as=Table;g=meta.k8s.io;v=v1"
	waitUntil(t, func() error { // priority levels have their names once the default objects exist
		answer, err := get("admin", "/api/v1/namespaces/default", "application/json")
		if err == nil && !strings.Contains(answer, "X-Kubernetes-Pf-Flowschema-Uid") {
			err = errors.New("the request's priority has no name yet")
		}
		return err
	})
	var all sync.WaitGroup
	requests := 0
	for _, user := range []string{"admin", "nobody"} {
		for _, path := range []string{"small", "large", "none"} {
			for _, accept := range []string{"application/json", "application/vnd.kubernetes.protobuf",
				"application/yaml", "application/cbor", table,
				"application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1", "text/html"} {
				requests++
				all.Go(func() {
					path := "/api/v1/namespaces/default/configmaps/" + path
					prompt, err := get(user, path, accept)
					if err != nil {
						t.Error(err)
					}
					waited, err := get(user, path+"?also=", accept)
					if err != nil {
						t.Error(err)
					}
					if prompt != waited {
						t.Errorf("%s of %s as %s: %.300s\ninstead of %.300s", path, user, accept, prompt, waited)
					}
				})
			}
		}
	}
	all.Wait()
	checkAuditedReads(t, log, requests)
}

// checkAuditedReads waits until the audit log has the given number of reads on either path.
func checkAuditedReads(t *testing.T, log string, requests int) {
	waitUntil(t, func() error {
		text, err := os.ReadFile(log)
		if err != nil {
			return err
		}
		for _, stage := range []string{"RequestReceived", "ResponseComplete"} {
			prompt, waited := 0, 0
			for line := range bytes.Lines(text) {
				switch {
				case !bytes.Contains(line, []byte(`"stage":"`+stage+`"`)) || !bytes.Contains(line, []byte(`"verb":"get"`)):
				case bytes.Contains(line, []byte("?also=")):
					waited++
				case bytes.Contains(line, []byte("/namespaces/default/configmaps/")):
					prompt++
				}
			}
			if prompt != requests || waited != requests {
				return fmt.Errorf("the audit log has %d and %d times %s, want %d", prompt, waited, stage, requests)
			}
		}
		return nil
	})
}

package apiserver_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// A watch that is not read does not delay other watches of its connection, and later continues where it was.
// Proves S13.
func TestUnreadWatchDelaysNoOther(t *testing.T) {
	cfg := startConfig(t, stores["memory"](t), nil)
	ctx := timeoutContext(t)
	maps := kubernetes.NewForConfigOrDie(cfg).CoreV1().ConfigMaps("default")
	made, err := maps.Create(ctx, configMap("a"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	open := func() *bufio.Scanner {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet,
			cfg.Host+"/api/v1/namespaces/default/configmaps?watch=1&resourceVersion="+made.ResourceVersion, nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = answer.Body.Close() })
		lines := bufio.NewScanner(answer.Body)
		lines.Buffer(nil, 1<<20)
		return lines
	}
	slow, swift := open(), open()
	const times = 20 // more than a client buffers without being read
	read := func(what string, lines *bufio.Scanner, n int) {
		t.Helper()
		var event struct {
			Object struct{ Data map[string]string }
		}
		if !lines.Scan() {
			t.Fatalf("the %s watch ended before change %d: %v", what, n, lines.Err())
		}
		if err := json.Unmarshal(lines.Bytes(), &event); err != nil || event.Object.Data["n"] != fmt.Sprint(n) {
			t.Fatalf("the %s watch has change %q, want %d: %v", what, event.Object.Data["n"], n, err)
		}
	}
	for n := 1; n <= times; n++ {
		made.Data = map[string]string{"n": fmt.Sprint(n), "large": strings.Repeat("x", 256<<10)}
		if made, err = maps.Update(ctx, made, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		read("swift", swift, n)
	}
	for n := 1; n <= times; n++ {
		read("slow", slow, n)
	}
}

// Hundreds of watches receive every change once and in order, even if changes are sent together.
// Proves S4.
func TestManyWatchesReceiveEveryChangeInOrder(t *testing.T) {
	cfg := startConfig(t, stores["memory"](t), nil)
	ctx := timeoutContext(t)
	maps := kubernetes.NewForConfigOrDie(cfg).CoreV1().ConfigMaps("default")
	made, err := maps.Create(ctx, configMap("a"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	const watches, times = 300, 20
	results := make(chan error, watches)
	for range watches {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet,
			cfg.Host+"/api/v1/namespaces/default/configmaps?watch=1&resourceVersion="+made.ResourceVersion, nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = answer.Body.Close() })
		go func() {
			lines := json.NewDecoder(answer.Body)
			for n := 1; n <= times; n++ {
				var event struct {
					Object struct{ Data map[string]string }
				}
				if err := lines.Decode(&event); err != nil {
					results <- fmt.Errorf("read change %d: %w", n, err)
					return
				}
				if got := event.Object.Data["n"]; got != fmt.Sprint(n) {
					results <- fmt.Errorf("change %q came, want %d", got, n)
					return
				}
			}
			results <- nil
		}()
	}
	for n := 1; n <= times; n++ {
		made.Data = map[string]string{"n": fmt.Sprint(n)}
		if made, err = maps.Update(ctx, made, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for range watches {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
}

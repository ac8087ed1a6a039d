package dashboard_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"clusterctl/daemons/dashboard"
	"clusterctl/kube/kubernetes"
)

// frame is a frame of the server.
type frame struct {
	ID      int    `json:"id"`
	Total   int    `json:"total"`
	Matched int    `json:"matched"`
	Offset  int    `json:"offset"`
	State   string `json:"state"`
	Columns []struct {
		Name string `json:"name"`
	} `json:"columns"`
	Rows []struct {
		UID, Namespace, Name, Created string
		Cells                         []any
	} `json:"rows"`
	Error *struct {
		Code    int    `json:"code"`
		Reason  string `json:"reason"`
		Message string `json:"message"`
	} `json:"error"`
}

// live is a page's connection.
type live struct {
	t    *testing.T
	conn *websocket.Conn
}

func (b *browser) live() *live {
	b.w.t.Helper()
	conn, answer, err := b.dial("/api/live", http.Header{})
	if err != nil {
		b.w.t.Fatalf("%v, %v", err, answer)
	}
	return &live{b.w.t, conn}
}

func (l *live) send(text string) {
	l.t.Helper()
	if err := l.conn.WriteMessage(websocket.TextMessage, []byte(text)); err != nil {
		l.t.Fatal(err)
	}
}

// await reads frames until one is as wanted.
func (l *live) await(what string, matches func(frame) bool) frame {
	l.t.Helper()
	if err := l.conn.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		l.t.Fatal(err)
	}
	var last string
	for {
		_, text, err := l.conn.ReadMessage()
		if err != nil {
			l.t.Fatalf("%s: %v; the last frame: %s", what, err, last)
		}
		last = string(text)
		var f frame
		if err := json.Unmarshal(text, &f); err != nil {
			l.t.Fatal(err)
		}
		if matches(f) {
			return f
		}
	}
}

func (w *world) admin() kubernetes.Interface {
	config := rest.CopyConfig(w.api)
	config.BearerToken, config.QPS = adminToken, -1
	return kubernetes.NewForConfigOrDie(config)
}

func (w *world) createConfigMaps(first, count int) {
	w.t.Helper()
	for i := range count {
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("map-%d", first+i),
			Labels: map[string]string{"half": fmt.Sprint((first + i) % 2)}}}
		if _, err := w.admin().CoreV1().ConfigMaps("default").Create(w.t.Context(), object,
			metav1.CreateOptions{}); err != nil {
			w.t.Fatal(err)
		}
	}
}

const openConfigMaps = `{"id":7,"op":"open","group":"","version":"v1","resource":"configmaps","namespace":"default",` +
	`"filter":"map-","sort":"name","offset":0,"limit":3}`

func TestTablesShowChangesAsTheyHappen(t *testing.T) {
	w := newWorld(t, dashboard.SignInByToken)
	w.createConfigMaps(1, 12)
	l := w.signInByToken(readerToken).live()
	l.send(openConfigMaps)
	f := l.await("the first rows", func(f frame) bool { return f.ID == 7 && f.State == "live" && f.Matched == 12 })
	if len(f.Rows) != 3 || f.Rows[0].Name != "map-1" || f.Rows[2].Name != "map-3" || f.Total < 12 ||
		f.Rows[0].Namespace != "default" || f.Rows[0].UID == "" || f.Columns[0].Name != "Name" ||
		f.Rows[0].Cells[0] != "map-1" {
		t.Errorf("%+v", f)
	}
	if _, err := time.Parse(time.RFC3339, f.Rows[0].Created); err != nil {
		t.Error(err)
	}
	w.createConfigMaps(0, 1)
	f = l.await("the new row", func(f frame) bool { return f.Matched == 13 })
	if f.Rows[0].Name != "map-0" {
		t.Errorf("%+v", f)
	}
	l.send(`{"id":7,"op":"window","filter":"map- label:half=1","sort":"-name","offset":2,"limit":2}`)
	f = l.await("the other window", func(f frame) bool { return f.Matched == 6 })
	if f.Offset != 2 || len(f.Rows) != 2 || f.Rows[0].Name != "map-7" || f.Rows[1].Name != "map-5" {
		t.Errorf("%+v", f)
	}
	if err := w.admin().CoreV1().ConfigMaps("default").Delete(t.Context(), "map-7",
		metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	f = l.await("the deletion", func(f frame) bool { return f.Matched == 5 })
	if f.Rows[0].Name != "map-5" {
		t.Errorf("%+v", f)
	}
	l.send(`{"id":7,"op":"window","filter":"","sort":"","offset":100000,"limit":100000}`)
	f = l.await("a window after the end", func(f frame) bool { return f.Matched >= 12 })
	if len(f.Rows) != 0 || f.Offset != f.Matched {
		t.Errorf("%+v", f)
	}
	l.send(`{"id":7,"op":"close"}`)
	l.send(`{"id":7,"op":"window"}`)
	f = l.await("a closed table", func(f frame) bool { return f.Error != nil })
	if f.Error.Code != http.StatusBadRequest {
		t.Errorf("%+v", f.Error)
	}
}

func TestTablesHaveTheRightsOfTheVisitor(t *testing.T) {
	w := newWorld(t, dashboard.SignInByToken)
	l := w.signInByToken(readerToken).live()
	l.send(`{"id":1,"op":"open","version":"v1","resource":"secrets","limit":10}`)
	f := l.await("the refusal", func(f frame) bool { return f.Error != nil })
	if f.ID != 1 || f.Error.Code != http.StatusForbidden || f.Error.Reason != "Forbidden" ||
		!strings.Contains(f.Error.Message, "reader") {
		t.Errorf("%+v", f.Error)
	}
	l.send(`{"id":2,"op":"open","group":"nothing.example","version":"v1","resource":"things","limit":10}`)
	if f := l.await("an unknown kind", func(f frame) bool { return f.ID == 2 && f.Error != nil }); f.Error.Code != 404 {
		t.Errorf("%+v", f.Error)
	}
}

func TestConnectionsHaveAtMostSixteenTables(t *testing.T) {
	w := newWorld(t, dashboard.SignInByToken)
	l := w.signInByToken(readerToken).live()
	for i := range 17 {
		l.send(fmt.Sprintf(`{"id":%d,"op":"open","version":"v1","resource":"configmaps","namespace":"n%d"}`, i, i))
	}
	f := l.await("the refusal", func(f frame) bool { return f.Error != nil })
	if f.ID != 16 || f.Error.Code != http.StatusTooManyRequests {
		t.Errorf("%+v, %+v", f, f.Error)
	}
}

func TestInvalidFramesEndTheConnection(t *testing.T) {
	w := newWorld(t, dashboard.SignInByToken)
	for name, text := range map[string]string{"no JSON": "x", "too long": `{"filter":"` + strings.Repeat("x", 64<<10) +
		`"}`, "numbers": `{"id":1e99}`} {
		l := w.signInByToken(readerToken).live()
		l.send(text)
		if err := l.conn.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
			t.Fatal(err)
		}
		if _, _, err := l.conn.ReadMessage(); err == nil || strings.Contains(err.Error(), "timeout") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestLiveConnectionsEndWithTheSession(t *testing.T) {
	w := newWorld(t, dashboard.SignInByToken)
	b := w.signInByToken(readerToken)
	l := b.live()
	l.send(openConfigMaps)
	l.await("the first rows", func(f frame) bool { return f.State == "live" })
	if got := b.do(http.MethodPost, "/signout", ""); got.StatusCode != http.StatusNoContent {
		t.Fatalf("sign out: %s", got.Status)
	}
	if err := l.conn.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	for {
		if _, _, err := l.conn.ReadMessage(); err != nil {
			if !websocket.IsCloseError(err, websocket.CloseNormalClosure) {
				t.Errorf("the connection ended with %v", err)
			}
			return
		}
	}
}

func TestReadOnlyVisitorsSeeOnlyWhatTheyMay(t *testing.T) {
	w := newWorld(t, dashboard.SignInByToken)
	b := w.signInByToken(readerToken)
	questions := `[{"verb":"list","resource":"pods"},{"verb":"delete","resource":"pods","namespace":"default"},` +
		`{"verb":"list","resource":"secrets"},{"verb":"list","resource":"pods"},` +
		`{"verb":"create","resource":"pods","subresource":"exec"}]`
	got := b.do(http.MethodPost, "/api/access", questions)
	if strings.TrimSpace(got.text) != "[true,false,false,true,false]" {
		t.Errorf("access: %s %s", got.Status, got.text)
	}
	if got := b.do(http.MethodPost, "/api/access", "["+strings.Repeat(`{"verb":"get"},`, 100)+`{"verb":"get"}]`); got.
		StatusCode != http.StatusBadRequest {
		t.Errorf("101 questions: %s", got.Status)
	}
	if got := b.do(http.MethodPost, configMaps, configMap,
		set("Content-Type", "application/json")); got.StatusCode != http.StatusForbidden {
		t.Errorf("a write: %s", got.Status)
	}
	var overview struct {
		Unseen []string
		Nodes  struct{ Total int }
	}
	b.get("/api/overview", &overview)
	if len(overview.Unseen) != 1 || overview.Unseen[0] != "nodes: forbidden" {
		t.Errorf("unseen: %q", overview.Unseen)
	}
	if got := b.do(http.MethodGet, "/api/nodes", ""); got.StatusCode != http.StatusForbidden {
		t.Errorf("nodes: %s", got.Status)
	}
	var certificates struct {
		Certificates []struct{ Name string }
		Unseen       []string
	}
	b.get("/api/certificates", &certificates)
	if len(certificates.Certificates) != 1 || !strings.HasPrefix(certificates.Certificates[0].Name, "API server") ||
		strings.Join(certificates.Unseen, "") != "secrets of type kubernetes.io/tls: forbidden" {
		t.Errorf("certificates: %+v", certificates)
	}
	var etcd struct {
		Members []any
		Unseen  []string
	}
	b.get("/api/etcd", &etcd)
	if len(etcd.Members) != 0 || len(etcd.Unseen) != 2 {
		t.Errorf("etcd: %+v", etcd)
	}
	if got := b.do(http.MethodGet, "/api/why?resource=secrets&name=x", ""); got.StatusCode != http.StatusBadRequest {
		t.Errorf("why: %s %s", got.Status, got.text)
	}
}

func (w *world) create(ctx context.Context, objects ...any) {
	w.t.Helper()
	c := w.admin()
	for _, o := range objects {
		var err error
		switch o := o.(type) {
		case *corev1.Node:
			if o, err = c.CoreV1().Nodes().Create(ctx, o, metav1.CreateOptions{}); err == nil {
				_, err = c.CoreV1().Nodes().UpdateStatus(ctx, o, metav1.UpdateOptions{})
			}
		case *corev1.Pod:
			status := o.Status
			if o, err = c.CoreV1().Pods("default").Create(ctx, o, metav1.CreateOptions{}); err == nil {
				o.Status = status
				_, err = c.CoreV1().Pods("default").UpdateStatus(ctx, o, metav1.UpdateOptions{})
			}
		}
		if err != nil {
			w.t.Fatal(err)
		}
	}
}

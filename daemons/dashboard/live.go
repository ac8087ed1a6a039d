package dashboard

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/gorilla/websocket"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"clusterctl/daemons/dashboard/table"
)

// The limits of a live connection.
const (
	maxTables     = 16
	maxLiveFrame  = 64 << 10               // of the client
	liveInterval  = 250 * time.Millisecond // between two frames of changes
	liveWriteTime = 10 * time.Second
	livePing      = 30 * time.Second
	liveSilence   = 75 * time.Second // without an answer to a ping
)

// liveRequest is a frame of the client.
type liveRequest struct {
	ID        int    `json:"id"`
	Op        string `json:"op"` // open, window or close
	Group     string `json:"group"`
	Version   string `json:"version"`
	Resource  string `json:"resource"`
	Namespace string `json:"namespace"`
	Filter    string `json:"filter"`
	Sort      string `json:"sort"`
	Offset    int    `json:"offset"`
	Limit     int    `json:"limit"`
}

func (r *liveRequest) query() table.Query {
	return table.Query{Filter: r.Filter, Sort: r.Sort, Offset: r.Offset, Limit: r.Limit}
}

// liveWindow is a frame of the server with the window of a table.
type liveWindow struct {
	ID int `json:"id"`
	table.Window
}

// liveFailure is a frame of the server that closes a table.
type liveFailure struct {
	ID    int       `json:"id"`
	Error liveError `json:"error"`
}

type liveError struct {
	Code    int32               `json:"code"`
	Reason  metav1.StatusReason `json:"reason"`
	Message string              `json:"message"`
}

// liveTable is an open table of a connection.
type liveTable struct {
	view    *table.View
	release func() // of the feed
	sent    []byte // last frame
}

func (t *liveTable) close() {
	t.view.Close()
	t.release()
}

// liveConnection sends the tables of a page over one WebSocket.
type liveConnection struct {
	conn    *websocket.Conn
	session *session
	now     func() time.Time
	tables  map[int]*liveTable
	changed chan struct{} // has a value if a table may have changed
}

// serveLive answers /api/live.
func (d *Dashboard) serveLive(w http.ResponseWriter, r *http.Request) {
	upgrader := websocket.Upgrader{
		HandshakeTimeout: liveWriteTime,
		CheckOrigin:      func(*http.Request) bool { return true }, // checkOrigin was called before
		Error: func(w http.ResponseWriter, _ *http.Request, code int, reason error) {
			writeError(w, newError(code, metav1.StatusReasonBadRequest, reason.Error()))
		},
	}
	conn, err := upgrader.Upgrade(w, r, nil)
	if err != nil {
		return // Upgrade has answered
	}
	c := &liveConnection{conn: conn, session: sessionOf(r), now: d.config.Now, tables: map[int]*liveTable{},
		changed: make(chan struct{}, 1)}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	requests := make(chan liveRequest)
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer cancel()
		c.read(ctx, requests)
	}()
	c.run(ctx, requests)
	for _, t := range c.tables {
		t.close()
	}
	end := websocket.FormatCloseMessage(websocket.CloseNormalClosure, "")
	_ = conn.WriteControl(websocket.CloseMessage, end, time.Now().Add(time.Second)) // the client may be gone
	_ = conn.Close()
	cancel()
	<-done
}

// read passes on the client's frames until the connection ends. A frame counts as a use of the session.
func (c *liveConnection) read(ctx context.Context, requests chan<- liveRequest) {
	c.conn.SetReadLimit(maxLiveFrame)
	extend := func(string) error { return c.conn.SetReadDeadline(time.Now().Add(liveSilence)) }
	c.conn.SetPongHandler(extend)
	for {
		if extend("") != nil {
			return
		}
		kind, text, err := c.conn.ReadMessage()
		if err != nil {
			return
		}
		var q liveRequest
		if kind != websocket.TextMessage || json.Unmarshal(text, &q) != nil {
			return
		}
		c.session.touch(c.now())
		select {
		case requests <- q:
		case <-ctx.Done():
			return
		}
	}
}

// run answers the client's frames, and sends changes, until ctx ends or the client is gone.
func (c *liveConnection) run(ctx context.Context, requests <-chan liveRequest) {
	ping := time.NewTicker(livePing)
	defer ping.Stop()
	flush := time.NewTimer(0)
	if !flush.Stop() {
		<-flush.C
	}
	defer flush.Stop()
	isArmed, last := false, time.Time{}
	for {
		var err error
		select {
		case <-ctx.Done():
			return
		case q := <-requests:
			err = c.handle(q)
		case <-c.changed:
			if !isArmed {
				isArmed = true
				flush.Reset(max(liveInterval-time.Since(last), 0))
			}
		case <-flush.C:
			isArmed, last = false, time.Now()
			for id := range c.tables {
				if err = c.sendWindow(id); err != nil {
					return
				}
			}
		case <-ping.C:
			err = c.conn.WriteControl(websocket.PingMessage, nil, time.Now().Add(liveWriteTime))
		}
		if err != nil {
			return
		}
	}
}

// handle carries out a frame of the client. An error means that the client is gone.
func (c *liveConnection) handle(q liveRequest) error {
	switch q.Op {
	case "open":
		if err := c.open(q); err != nil {
			return c.fail(q.ID, err)
		}
		return c.sendWindow(q.ID)
	case "window":
		t := c.tables[q.ID]
		if t == nil {
			return c.fail(q.ID, apierrors.NewBadRequest("the table is not open"))
		}
		t.view.Set(q.query())
		t.sent = nil
		return c.sendWindow(q.ID)
	case "close":
		c.close(q.ID)
		return nil
	}
	return c.fail(q.ID, apierrors.NewBadRequest("op is open, window or close"))
}

func (c *liveConnection) open(q liveRequest) error {
	c.close(q.ID)
	if len(c.tables) >= maxTables {
		return apierrors.NewTooManyRequests("more than 16 tables are open", 1)
	}
	feed, release, err := c.session.tables.Open(table.Kind{Group: q.Group, Version: q.Version, Resource: q.Resource,
		Namespace: q.Namespace})
	if err != nil {
		return err
	}
	c.tables[q.ID] = &liveTable{release: release, view: feed.Subscribe(q.query(), func() {
		select {
		case c.changed <- struct{}{}:
		default: // reported already
		}
	})}
	return nil
}

func (c *liveConnection) close(id int) {
	if t := c.tables[id]; t != nil {
		t.close()
		delete(c.tables, id)
	}
}

// sendWindow sends the window of a table, unless it is the same as before.
func (c *liveConnection) sendWindow(id int) error {
	t := c.tables[id]
	w, err := t.view.Window(c.now())
	if err != nil {
		return c.fail(id, err)
	}
	text, err := json.Marshal(liveWindow{id, w})
	if err != nil {
		return c.fail(id, apierrors.NewInternalError(err))
	}
	if bytes.Equal(text, t.sent) {
		return nil
	}
	t.sent = text
	return c.write(text)
}

// fail reports that a table cannot be had, and closes it.
func (c *liveConnection) fail(id int, err error) error {
	c.close(id)
	status := statusOf(err)
	text, err := json.Marshal(liveFailure{id, liveError{status.Code, status.Reason, status.Message}})
	if err != nil {
		return err
	}
	return c.write(text)
}

func (c *liveConnection) write(text []byte) error {
	if err := c.conn.SetWriteDeadline(time.Now().Add(liveWriteTime)); err != nil {
		return err
	}
	return c.conn.WriteMessage(websocket.TextMessage, text)
}

package apiserver

import (
	"context"
	"encoding/binary"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"clusterctl/daemons/api"
	"clusterctl/daemons/api/header"
	"clusterctl/daemons/apiserver/audit"
	"clusterctl/daemons/apiserver/request"
)

// auditing records requests in the audit log.
type auditing struct {
	auditor *audit.Auditor  // nil records nothing
	scheme  *runtime.Scheme // decodes bodies in protobuf
	now     func() time.Time
}

// start is the stage that decides what is recorded about a request. It runs right after authentication, before any
// impersonation.
func (a *auditing) start(q *request.Request) error {
	if a.auditor == nil {
		return nil
	}
	q.Answer.Audit = a.newRecord(q)
	a.recordReceived(q)
	if record := q.Answer.Audit; record != nil && q.IsLongRunning() {
		q.Answer.OnHeader(record.Started)
	}
	return nil
}

// recordReceived records that a request has arrived.
func (a *auditing) recordReceived(q *request.Request) {
	if q.Answer.Decision != nil {
		a.auditor.Count(q.Answer.Decision)
	}
	q.Answer.Audit.Received()
}

// startFast decides what is recorded, if recording needs no waiting.
func (a *auditing) startFast(q *request.Request) bool {
	if a.auditor == nil {
		return true
	}
	if !a.auditor.CanRecordNow() {
		return false
	}
	q.Answer.Audit = a.newRecord(q)
	return true
}

// recordUnauthenticated records a request whose credentials are invalid.
func (a *auditing) recordUnauthenticated(q *request.Request) {
	if a.auditor == nil {
		return
	}
	q.User = api.User{}
	q.Answer.Audit = a.newRecord(q)
	a.auditor.Count(q.Answer.Decision)
	q.Answer.Audit.SetUnauthenticated()
}

// newRecord returns the record of a request. It is nil if the policy records nothing about the request.
func (a *auditing) newRecord(q *request.Request) *audit.Record {
	d := a.auditor.Policy.Decide(q.User, q.Request)
	q.Answer.Decision = d
	if d.Level == auditv1.LevelNone {
		return nil
	}
	id := q.Answer.Header().Get(auditv1.HeaderAuditID)
	event := auditv1.Event{
		TypeMeta: metav1.TypeMeta{Kind: "Event", APIVersion: auditv1.SchemeGroupVersion.String()},
		Level:    d.Level, AuditID: types.UID(id), RequestURI: q.HTTP.URL.RequestURI(), Verb: q.Verb,
		User: audit.UserInfo(q.User), SourceIPs: sourceIPs(q.HTTP), UserAgent: q.HTTP.UserAgent(),
		RequestReceivedTimestamp: metav1.NewMicroTime(a.now()),
	}
	if q.Resource {
		event.ObjectRef = &auditv1.ObjectReference{
			Resource: q.GroupVersionResource.Resource, Subresource: q.Subresource, Namespace: q.Namespace, Name: q.Name,
			APIGroup: q.Group, APIVersion: q.GroupVersionResource.Version,
		}
	}
	return audit.NewRecord(a.auditor, d, a.now, event)
}

// run runs the auditor until the returned function is called. The caller calls it after the last response.
func (a *auditing) run(ctx context.Context, log *slog.Logger) (end func()) {
	if a.auditor == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan error, 1)
	go func() { done <- a.auditor.Run(ctx) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			log.Error("close the audit log", "err", err)
		}
	}
}

// maxAuditID is the maximum length, in bytes, of an audit ID that a client sends.
const maxAuditID = 64

// setAuditID sets the response's audit ID header, by which clients and readers of the audit log refer to a request.
// It is the ID that the client sent, or else a new one. IDs need to be unique, not secret.
func setAuditID(q *request.Request) {
	id := q.HTTP.Header.Get(auditv1.HeaderAuditID)
	if id == "" || len(id) > maxAuditID {
		var bytes uuid.UUID
		binary.NativeEndian.PutUint64(bytes[:8], rand.Uint64())
		binary.NativeEndian.PutUint64(bytes[8:], rand.Uint64())
		bytes[6], bytes[8] = bytes[6]&0x0f|0x40, bytes[8]&0x3f|0x80 // a version 4 UUID, as upstream generates
		id = bytes.String()
	}
	q.Answer.Header().Set(auditv1.HeaderAuditID, id)
}

// recordCompleted records the end of a request.
func (a *auditing) recordCompleted(q *request.Request) {
	record := q.Answer.Audit
	if record == nil {
		return
	}
	var body *runtime.Unknown
	if data, ok := record.ResponseBody(); ok {
		body = a.bodyJSON(record, q.Answer.Header().Get("Content-Type"), data)
	}
	record.Completed(q.Answer.Code(), body)
}

// sourceIPs returns the addresses from the forwarding headers of a request, followed by the peer's own address.
func sourceIPs(r *http.Request) (list []string) {
	add := func(text string) {
		if ip := net.ParseIP(strings.TrimSpace(text)); ip != nil && len(list) < 16 {
			list = append(list, ip.String())
		}
	}
	for text := range header.Elements(r.Header, "X-Forwarded-For") {
		add(text)
	}
	if len(list) == 0 {
		add(r.Header.Get("X-Real-Ip"))
	}
	if host, _, err := net.SplitHostPort(r.RemoteAddr); err == nil && (len(list) == 0 || list[len(list)-1] != host) {
		add(host)
	}
	return list
}

package server

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"clusterctl/daemons/api/directory"
	"clusterctl/daemons/kubelet/volume"
)

// serveRemoveVolume removes the directory of a volume that was provisioned on this node, and responds when it is gone.
// Requests can be repeated. The query carries what the volume's object records about the directory, because a
// reinstalled machine has lost its own notes.
func (s *Server) serveRemoveVolume(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	if err := directory.CheckName(name); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	query := r.URL.Query()
	s.respondVolume(w, name, "remove", s.Volumes.RemoveProvisioned(name, query.Get(directory.UsedParameter) != "",
		query.Get(directory.MachineParameter)))
}

// serveGrowVolume raises the size limit of the directory of a volume that was provisioned on this node. The query holds
// the new size in bytes.
func (s *Server) serveGrowVolume(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	bytes, err := strconv.ParseInt(r.URL.Query().Get(directory.SizeParameter), 10, 64)
	if err == nil {
		err = directory.CheckName(name)
	}
	if err != nil || bytes <= 0 {
		http.Error(w, "the query says no size, or the path no volume", http.StatusBadRequest)
		return
	}
	s.respondVolume(w, name, "grow", s.Volumes.GrowProvisioned(name, bytes))
}

// respondVolume responds with a Status that names the volume. The client can thereby distinguish it from responses of
// intermediaries.
func (s *Server) respondVolume(w http.ResponseWriter, name, what string, err error) {
	status := metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusSuccess,
		Code:     http.StatusOK,
		Details:  &metav1.StatusDetails{Kind: directory.Resource, Name: name},
	}
	if err != nil {
		status.Status, status.Message, status.Reason, status.Code = metav1.StatusFailure, err.Error(),
			metav1.StatusReasonInternalError, http.StatusInternalServerError
	}
	switch {
	case errors.Is(err, volume.ErrInUse):
		status.Reason, status.Code = metav1.StatusReasonConflict, http.StatusConflict
	case errors.Is(err, volume.ErrTooLarge):
		status.Reason, status.Code = metav1.StatusReasonInvalid, http.StatusUnprocessableEntity
	case errors.Is(err, volume.ErrMissing):
		status.Details.Causes = []metav1.StatusCause{{Type: directory.MissingCause, Message: err.Error()}}
	case err != nil:
		s.Log.Warn("change a provisioned volume", "what", what, "volume", name, "error", err)
	default:
		s.Log.Info("changed a provisioned volume", "what", what, "volume", name)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(int(status.Code))
	_ = json.NewEncoder(w).Encode(status)
}

package openapi

import (
	"net/http"

	"clusterctl/daemons/kinds"
)

func New([]*kinds.Kind) http.Handler { return http.NotFoundHandler() }

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/failsafe-go/failsafe-go/adaptivelimiter"
	"github.com/failsafe-go/failsafe-go/adaptivethrottler"
)

// result is what became of a request that a node admitted.
type result struct {
	delay  time.Duration
	failed bool
	// The client left before the answer.
	left bool
}

// gate admits requests to one node.
type gate interface {
	// enter returns what to call when the request has ended, or false if it is refused.
	enter(ctx context.Context) (func(result), bool)
	// limit is the present one; 0 if the policy has none.
	limit() int
}

func newGate(policy string, settings json.RawMessage) (gate, error) {
	switch policy {
	case "adaptive-limiter":
		return newLimiter(settings)
	case "adaptive-throttler":
		return newThrottler(settings)
	}
	return nil, fmt.Errorf("policy: %q is neither adaptive-limiter nor adaptive-throttler", policy)
}

func parse(settings json.RawMessage, into any) error {
	if len(settings) == 0 {
		return nil
	}
	decoder := json.NewDecoder(bytes.NewReader(settings))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return fmt.Errorf("settings: %w", err)
	}
	return nil
}

type limiter struct {
	inner  adaptivelimiter.AdaptiveLimiter[any]
	queues bool
}

func newLimiter(settings json.RawMessage) (gate, error) {
	var set struct {
		InitialLimit   *uint     `json:"initial_limit"`
		RecentQuantile *float64  `json:"recent_quantile"`
		MaxLimitFactor *float64  `json:"max_limit_factor"`
		RecentSamples  *uint     `json:"recent_samples"`
		Queueing       []float64 `json:"queueing"`
	}
	if err := parse(settings, &set); err != nil {
		return nil, err
	}
	builder := adaptivelimiter.NewBuilder[any]()
	if set.InitialLimit != nil {
		builder = builder.WithLimits(1, 200, *set.InitialLimit)
	}
	if set.RecentQuantile != nil {
		builder = builder.WithRecentQuantile(*set.RecentQuantile)
	}
	if set.MaxLimitFactor != nil {
		builder = builder.WithMaxLimitFactor(*set.MaxLimitFactor)
	}
	if set.RecentSamples != nil {
		builder = builder.WithRecentWindow(time.Second, 30*time.Second, *set.RecentSamples)
	}
	if len(set.Queueing) == 2 {
		builder = builder.WithQueueing(set.Queueing[0], set.Queueing[1])
	} else if set.Queueing != nil {
		return nil, fmt.Errorf("settings: queueing: %v: two factors are needed", set.Queueing)
	}
	return &limiter{builder.Build(), set.Queueing != nil}, nil
}

func (l *limiter) enter(ctx context.Context) (func(result), bool) {
	permit, ok := l.inner.TryAcquirePermit()
	if !ok && l.queues {
		var err error
		permit, err = l.inner.AcquirePermit(ctx)
		ok = err == nil
	}
	if !ok {
		return nil, false
	}
	return func(ended result) {
		// A client that gave up waited as long as it did.
		if ended.failed && !ended.left {
			permit.Drop()
		} else {
			permit.Record()
		}
	}, true
}

func (l *limiter) limit() int { return l.inner.Limit() }

type throttler struct {
	inner adaptivethrottler.AdaptiveThrottler[any]
	sla   time.Duration
}

var errLate = errors.New("late or failed")

func newThrottler(settings json.RawMessage) (gate, error) {
	set := struct {
		SLASeconds    float64  `json:"sla_seconds"`
		FailureRate   *float64 `json:"failure_rate"`
		Executions    uint     `json:"executions"`
		PeriodSeconds float64  `json:"period_seconds"`
	}{SLASeconds: 0.5, Executions: 20, PeriodSeconds: 60}
	if err := parse(settings, &set); err != nil {
		return nil, err
	}
	builder := adaptivethrottler.NewBuilder[any]()
	if set.FailureRate != nil {
		builder = builder.WithFailureRateThreshold(*set.FailureRate, set.Executions, seconds(set.PeriodSeconds))
	}
	return &throttler{builder.Build(), seconds(set.SLASeconds)}, nil
}

func seconds(value float64) time.Duration { return time.Duration(value * float64(time.Second)) }

func (t *throttler) enter(context.Context) (func(result), bool) {
	if !t.inner.TryAcquirePermit() {
		return nil, false
	}
	return func(ended result) {
		if ended.failed || ended.delay > t.sla {
			t.inner.RecordError(errLate)
		} else {
			t.inner.RecordSuccess()
		}
	}, true
}

func (t *throttler) limit() int { return 0 }

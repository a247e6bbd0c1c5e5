"""A stand-in for Pub/Sub: a gRPC server that speaks the API's messages to the real client library, and fails as it is told.

At least once, no order promised, no persistence. What it cannot do fails the call with UNIMPLEMENTED.
"""

import math
import random
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
from google.protobuf.empty_pb2 import Empty
from google.pubsub_v1 import types


class _Held:
    def __init__(self, message: Any, attempt: int, until: float) -> None:
        self.message = message
        self.attempt = attempt
        self.until = until


class _Subscription:
    def __init__(self, proto: Any) -> None:
        self.proto = proto
        self.ready: deque[tuple[Any, int]] = deque()  # message, number of its next delivery
        self.held: dict[str, _Held] = {}
        self.later: list[tuple[float, Any]] = []  # when, message

    def settle(self, now: float) -> None:
        """Bring what is due to those that are ready."""
        due = [message for at, message in self.later if at <= now]
        self.later = [(at, message) for at, message in self.later if at > now]
        self.ready.extend((message, 1) for message in due)
        for ack_id in [ack_id for ack_id, held in self.held.items() if held.until <= now]:
            held = self.held.pop(ack_id)
            self.ready.append((held.message, held.attempt + 1))


class PubSubServer:
    """Topics and subscriptions in memory. The attributes are the faults; `reset` takes them all away."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(48, thread_name_prefix="pubsub-server")
        self._server: grpc.Server | None = None
        self._changed = threading.Condition()
        self.port = 0
        self.reset()

    @property
    def host(self) -> str:
        """What PUBSUB_EMULATOR_HOST is to say."""
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Listen: on a free port at first, on the same port later."""
        server = grpc.server(self._pool, options=[("grpc.so_reuseport", 0), ("grpc.max_receive_message_length", -1)])
        for service, methods in _METHODS.items():
            server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, self._handlers(methods)),))
        self.port = server.add_insecure_port(f"127.0.0.1:{self.port}")
        server.start()
        self._server = server

    def stop(self) -> None:
        """Stop listening; what is stored stays."""
        server, self._server = self._server, None
        if server is not None:
            with self._changed:
                self._stopping = True
                self._changed.notify_all()
            server.stop(0).wait(10)
            self._stopping = False

    def close(self) -> None:
        """End for good."""
        self.stop()
        self._pool.shutdown()

    def reset(self) -> None:
        """Forget everything, faults included."""
        with self._changed:
            self._stopping = False
            self.topics: set[str] = set()
            self.subscriptions: dict[str, _Subscription] = {}
            self.calls: Counter[str] = Counter()
            self.published: list[tuple[dict[str, str], bytes]] = []  # attributes and data, in the order of arrival
            self.fail: Callable[[str], grpc.StatusCode | None] = lambda method: None
            self.lose_reply: Callable[[str], bool] = lambda method: False  # done, and not known to be
            self.copies = 1  # deliveries of each message
            self.drop: Callable[[dict[str, str]], bool] = lambda attributes: False
            self.delay_s: Callable[[dict[str, str]], float] = lambda attributes: 0.0
            self.shuffle: random.Random | None = None  # deliver in any order
            self.lost_acks = 0  # so many acknowledgements from now on have no effect
            self._ids = 0
            self._changed.notify_all()

    def unavailable(self, is_down: bool = True) -> None:
        """Answer every call with UNAVAILABLE from now on, or no more."""
        self.fail = (lambda method: grpc.StatusCode.UNAVAILABLE) if is_down else (lambda method: None)
        with self._changed:
            self._changed.notify_all()

    def delete_subscription(self, name: str) -> None:
        """Take a subscription away, as somebody might in the console."""
        with self._changed:
            del self.subscriptions[name]
            self._changed.notify_all()

    def inject(self, topic: str, data: bytes, attributes: dict[str, str]) -> None:
        """Publish a message as anybody could who may."""
        message = types.PubsubMessage.pb()(data=data, attributes=attributes)
        with self._changed:
            self._spread(topic, message)

    def release_delayed(self) -> None:
        """Deliver now what was delayed."""
        with self._changed:
            for subscription in self.subscriptions.values():
                subscription.later = [(0.0, message) for _, message in subscription.later]
            self._changed.notify_all()

    def expire(self) -> None:
        """End every deadline now: whoever had pulled a message is taken for dead."""
        with self._changed:
            for subscription in self.subscriptions.values():
                subscription.settle(math.inf)
            self._changed.notify_all()

    def waiting(self, name: str) -> int:
        """Return how many messages of a subscription are not acknowledged."""
        with self._changed:
            found = self.subscriptions[name]
            return len(found.ready) + len(found.held) + len(found.later)

    def _handlers(self, methods: dict[str, tuple[Any, Any]]) -> dict[str, grpc.RpcMethodHandler]:
        return {
            name: grpc.unary_unary_rpc_method_handler(
                self._guarded(name),
                request_deserializer=request.FromString,
                response_serializer=reply.SerializeToString,
            )
            for name, (request, reply) in methods.items()
        }

    def _guarded(self, name: str) -> Callable[[Any, grpc.ServicerContext], Any]:
        work = getattr(self, f"_{name}")

        def call(request: Any, context: grpc.ServicerContext) -> Any:
            self.calls[name] += 1
            code = self.fail(name)
            if code is not None:
                context.abort(code, f"{name} fails as told")
            reply = work(request, context)
            if self.lose_reply(name):
                context.abort(grpc.StatusCode.UNAVAILABLE, f"reply of {name} is lost as told")
            return reply

        return call

    def _CreateTopic(self, request: Any, context: grpc.ServicerContext) -> Any:
        with self._changed:
            if request.name in self.topics:
                context.abort(grpc.StatusCode.ALREADY_EXISTS, "topic exists")
            self.topics.add(request.name)
        return request

    def _GetTopic(self, request: Any, context: grpc.ServicerContext) -> Any:
        self._topic(request.topic, context)
        return types.Topic.pb()(name=request.topic)

    def _Publish(self, request: Any, context: grpc.ServicerContext) -> Any:
        self._topic(request.topic, context)
        size = sum(len(message.data) for message in request.messages)
        if not request.messages or len(request.messages) > 1000 or size > 10_000_000:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"{len(request.messages)} messages of {size} bytes")
        if any(not message.data and not message.attributes for message in request.messages):
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "an empty message")
        with self._changed:
            for message in request.messages:
                self.published.append((dict(message.attributes), message.data))
                self._spread(request.topic, message)
        return types.PublishResponse.pb()(message_ids=[str(n) for n in range(len(request.messages))])

    def _spread(self, topic: str, message: Any) -> None:
        attributes = dict(message.attributes)
        if not self.drop(attributes):
            at = time.monotonic() + self.delay_s(attributes)
            for subscription in self.subscriptions.values():
                if subscription.proto.topic == topic:
                    subscription.later += [(at, message)] * self.copies
        self._changed.notify_all()

    def _CreateSubscription(self, request: Any, context: grpc.ServicerContext) -> Any:
        self._topic(request.topic, context)
        with self._changed:
            if request.name in self.subscriptions:
                context.abort(grpc.StatusCode.ALREADY_EXISTS, "subscription exists")
            if request.ack_deadline_seconds and not 10 <= request.ack_deadline_seconds <= 600:
                context.abort(grpc.StatusCode.INVALID_ARGUMENT, "ack deadline is 10 to 600 s")
            self.subscriptions[request.name] = _Subscription(request)
        return request

    def _GetSubscription(self, request: Any, context: grpc.ServicerContext) -> Any:
        return self._found(request.subscription, context).proto

    def _DeleteSubscription(self, request: Any, context: grpc.ServicerContext) -> Any:
        self._found(request.subscription, context)
        self.delete_subscription(request.subscription)
        return Empty()

    def _Pull(self, request: Any, context: grpc.ServicerContext) -> Any:
        while context.is_active() and not self._stopping:
            with self._changed:
                found = self._found(request.subscription, context)
                now = time.monotonic()
                found.settle(now)
                if found.ready or request.return_immediately:
                    return types.PullResponse.pb()(received_messages=self._take(found, request.max_messages, now))
                self._changed.wait(0.02)
            code = self.fail("Pull")
            if code is not None:
                context.abort(code, "Pull fails as told")
        return types.PullResponse.pb()()

    def _take(self, found: _Subscription, limit: int, now: float) -> list[Any]:
        if self.shuffle is not None:
            ready = list(found.ready)
            self.shuffle.shuffle(ready)
            found.ready = deque(ready)
        taken: list[Any] = []
        deadline_s = found.proto.ack_deadline_seconds or 10
        while found.ready and len(taken) < limit:
            message, attempt = found.ready.popleft()
            self._ids += 1
            ack_id = f"{found.proto.name}:{self._ids}"
            found.held[ack_id] = _Held(message, attempt, now + deadline_s)
            taken.append(types.ReceivedMessage.pb()(ack_id=ack_id, message=message, delivery_attempt=attempt))
        return taken

    def _Acknowledge(self, request: Any, context: grpc.ServicerContext) -> Any:
        with self._changed:
            found = self._found(request.subscription, context)
            for ack_id in request.ack_ids:
                if self.lost_acks > 0:
                    self.lost_acks -= 1
                    held = found.held.pop(ack_id, None)
                    if held is not None:
                        found.ready.append((held.message, held.attempt + 1))
                    continue
                found.held.pop(ack_id, None)
            self._changed.notify_all()
        return Empty()

    def _ModifyAckDeadline(self, request: Any, context: grpc.ServicerContext) -> Any:
        with self._changed:
            found = self._found(request.subscription, context)
            for ack_id in request.ack_ids:
                held = found.held.get(ack_id)
                if held is not None:
                    held.until = time.monotonic() + request.ack_deadline_seconds
            self._changed.notify_all()
        return Empty()

    def _topic(self, name: str, context: grpc.ServicerContext) -> None:
        if name not in self.topics:
            context.abort(grpc.StatusCode.NOT_FOUND, f"no topic {name}")

    def _found(self, name: str, context: grpc.ServicerContext) -> _Subscription:
        found = self.subscriptions.get(name)
        if found is None:
            context.abort(grpc.StatusCode.NOT_FOUND, f"no subscription {name}")
        assert found is not None
        return found


_METHODS: dict[str, dict[str, tuple[Any, Any]]] = {
    "google.pubsub.v1.Publisher": {
        "CreateTopic": (types.Topic.pb(), types.Topic.pb()),
        "GetTopic": (types.GetTopicRequest.pb(), types.Topic.pb()),
        "Publish": (types.PublishRequest.pb(), types.PublishResponse.pb()),
    },
    "google.pubsub.v1.Subscriber": {
        "CreateSubscription": (types.Subscription.pb(), types.Subscription.pb()),
        "GetSubscription": (types.GetSubscriptionRequest.pb(), types.Subscription.pb()),
        "DeleteSubscription": (types.DeleteSubscriptionRequest.pb(), Empty),
        "Pull": (types.PullRequest.pb(), types.PullResponse.pb()),
        "Acknowledge": (types.AcknowledgeRequest.pb(), Empty),
        "ModifyAckDeadline": (types.ModifyAckDeadlineRequest.pb(), Empty),
    },
}

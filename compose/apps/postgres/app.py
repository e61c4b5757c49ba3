"""A FastAPI application whose requests take CPU time of the PostgreSQL beside it, and read pages there.

Where the database is: PGHOST and libpq's other variables."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

import asyncpg
from fastapi import FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse
from prometheus_fastapi_instrumentator import Instrumentator

MAX_CPU_MS = 1000
RETRY_SECONDS = 0.1
NOT_YET = (OSError, asyncpg.CannotConnectNowError)


async def connect() -> asyncpg.Pool:
    while True:
        try:
            return await asyncpg.create_pool()
        except NOT_YET:
            await asyncio.sleep(RETRY_SECONDS)


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with await connect() as app.state.pool:
        app.state.reads_per_ms = await app.state.pool.fetchval("SELECT reads_per_ms FROM calibration")
        yield


app = FastAPI(lifespan=lifespan)
Instrumentator(
    excluded_handlers=["/healthz", "/metrics"], should_instrument_requests_inprogress=True
).instrument(app).expose(app)


@app.exception_handler(RequestValidationError)
async def refuse(request: Request, error: RequestValidationError) -> JSONResponse:
    return JSONResponse({"detail": error.errors()}, status_code=400)


@app.get("/work", response_class=PlainTextResponse)
async def work(cpu_ms: Annotated[float, Query(gt=0, le=MAX_CPU_MS)]) -> str:
    reads = max(1, round(cpu_ms * app.state.reads_per_ms))
    return f"{await app.state.pool.fetchval('SELECT digest_of_random_items($1)', reads)}\n"


@app.get("/healthz", response_class=PlainTextResponse)
async def healthz() -> str:
    return "ok\n"
